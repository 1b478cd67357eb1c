"""Standard streams that are full, closed or unread: a command says so in one line, and a run goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab import __main__ as program
from recsys_lab.base.streams import Outlet, Streams

ROOT = program.ROOT
SAID = "error: standard output: cannot write: No space left on device; free space there, or send it elsewhere\n"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """`PY` in it is this Python."""
    return subprocess.run(
        ["bash", "-c", re.sub(r"\bPY\b", sys.executable, line)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("words", ["-m recsys_lab", "-m recsys_lab show --help", "run.py --cfg job", "run.py --help", "run.py --version"])
def test_a_full_disk_behind_stdout_is_one_line(words: str) -> None:
    done = shell(f"PY {words} > /dev/full")
    assert (done.returncode, done.stderr) == (2, SAID)


def test_who_has_read_enough_is_no_mistake() -> None:
    done = shell("PY -m recsys_lab | head -1; echo ${PIPESTATUS[0]}; PY -m recsys_lab --help | true; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines()[1:] == ["0", "0"] and not done.stderr


def test_closed_streams() -> None:
    done = shell("PY -m recsys_lab >&-; echo $?; PY -m recsys_lab nope 2>&-; echo $?; PY -m recsys_lab <&- >&- 2>&-; echo $?")
    assert done.stdout.split() == ["0", "2", "0"] and not done.stderr


def test_what_is_opened_gets_no_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Else libraries that print would print into it."""
    file = str(tmp_path / "x")
    code = f"from recsys_lab.base.streams import Streams\nwith Streams(): file = open({file!r}, 'w'); assert file.fileno() > 2"
    assert shell(f'PY -c "{code}" <&- >&- 2>&-').returncode == 0


def test_letters_that_an_encoding_lacks() -> None:
    done = shell("PYTHONIOENCODING=ascii PY -m recsys_lab é")
    assert done.returncode == 2 and "given \\xe9" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_outlet_goes_on_after_its_reader_went_away() -> None:
    reads, writes = os.pipe()
    out = Outlet(writes)
    assert out.write(b"one") == 3 and os.read(reads, 9) == b"one" and out.error is None
    os.close(reads)
    assert out.write(b"two") == 3 and isinstance(out.error, BrokenPipeError) and out.write(b"three") == 5
    streams = Streams()
    streams.out = out
    assert (streams.code(0), streams.code(3)) == (0, 3)
    os.close(writes)


def test_what_could_not_be_written_is_said_once_and_hides_no_other_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        streams = Streams()
        streams.out = Outlet(full.fileno())
        assert streams.out.write(b"one") == 3
    assert (streams.code(0), streams.code(3)) == (2, 3) and capsys.readouterr().err == SAID


def test_streams_that_a_test_has_replaced_stay(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with Streams() as streams:
        assert sys.stdout is before and streams.out is None
    assert streams.code(0) == 0


def test_an_interrupt_is_one_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def cut_short(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("recsys_lab.commands.show.main", cut_short)
    assert program.main(["show", "x"]) == 130 and capsys.readouterr().err == "interrupted\n"
    done = shell('PY -c "from recsys_lab.base.streams import quiet_interrupts; quiet_interrupts(); raise KeyboardInterrupt"')
    assert (done.returncode, done.stderr) == (130, "interrupted\n") or (done.returncode, done.stderr) == (-2, "interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(13, 2), (28, 2), (2, None)])
def test_what_the_system_refuses_within_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    def refused(_: object) -> int:
        raise OSError(number, os.strerror(number), "/place")

    monkeypatch.setattr("recsys_lab.commands.show.main", refused)
    if code is None:  # a bug of ours
        with pytest.raises(FileNotFoundError):
            program.main(["show", "x"])
        return
    assert program.main(["show", "x"]) == code
    assert capsys.readouterr().err == f"error: /place: cannot read or write: {os.strerror(number)}; check permissions and free space\n"
