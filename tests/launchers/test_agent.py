"""The agent imports once, answers run after run, and never outlives its launcher; nor do ranks outlive the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launchers import agent
from launchers.local import launch
from recsys_lab.errors import RankLost, UserError
from tests.end_to_end.lines import default_signals

ROOT = Path(__file__).resolve().parents[2]


def about_process() -> tuple[int, int, bool]:
    return os.getpid(), os.getppid(), agent.LIBRARIES[0] in sys.modules


def says(word: str) -> str:
    return word


def waits(notes: str) -> None:
    Path(notes, f"rank{os.environ['RANK']}").write_text(str(os.getpid()))
    time.sleep(120)


def run(work: Callable, folder: Path, **arguments: object) -> object:
    return launch(work, arguments, folder, hosts=1, ranks_per_host=2, timeout_s=30)


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def of_session(number: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == number and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def test_one_agent_serves_all_runs_and_each_has_new_ranks(tmp_path: Path) -> None:
    first, second = (run(about_process, tmp_path) for _ in range(2))
    assert first[1] == second[1] == agent.start().process.pid and first[0] != second[0]  # type: ignore[index]
    assert first[2] and second[2], "ranks have what the agent has imported"  # type: ignore[index]


def test_a_rank_finds_modules_where_its_launcher_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what was written, or changed, after the agent started."""
    agent.start()
    monkeypatch.syspath_prepend(tmp_path)
    for number in (1, 2):
        (tmp_path / "written_later.py").write_text(f"def tells():\n    return {number}  {'#' * number}\n")
        sys.modules.pop("written_later", None)
        import written_later  # type: ignore[import-not-found]

        assert run(written_later.tells, tmp_path) == number


def test_an_agent_that_is_killed_is_a_lost_run_and_the_next_one_has_another(tmp_path: Path) -> None:
    process = agent.start().process
    process.kill()
    process.join()
    assert run(says, tmp_path, word="hello") == "hello"
    assert agent.start().process.pid != process.pid


KILLS = """
import os, signal, sys, threading, time
from pathlib import Path
from launchers import agent
from launchers.local import launch
from recsys_lab.errors import RankLost
from tests.launchers.test_agent import waits
notes = Path(sys.argv[1])
def kill():
    while len(list(notes.glob("rank?"))) < 2:
        time.sleep(0.05)
    agent.start().process.kill()
threading.Thread(target=kill).start()
try:
    launch(waits, {"notes": str(notes)}, notes, hosts=1, ranks_per_host=2)
except RankLost as error:
    print(error)
"""


def test_ranks_end_with_an_agent_that_is_killed(tmp_path: Path) -> None:
    line = [sys.executable, "-c", KILLS, str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert "lost (killed by SIGKILL); resume with: python run.py resume=" in done.stdout, done.stderr
    for rank in range(2):
        pid = int((tmp_path / f"rank{rank}").read_text())
        wait_until(lambda pid=pid: not is_alive(pid), 10)  # type: ignore[misc]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_launcher_that_is_ended_takes_the_importing_agent_with_it(number: signal.Signals, tmp_path: Path) -> None:
    code = "from launchers import agent; from recsys_lab.base.streams import quiet_interrupts; quiet_interrupts(); agent.start(); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True, preexec_fn=default_signals, **pipes)
    wait_until(lambda: len(of_session(process.pid)) > 2, 60)  # the agent, and what multiprocessing starts beside one
    time.sleep(1)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode and "Traceback" not in err
    wait_until(lambda: not of_session(process.pid), 60)


def test_imports_leave_no_thread_that_a_fork_would_lack_and_nothing_to_collect() -> None:
    code = (
        "import gc, threading; from launchers.agent import import_libraries; from recsys_lab.record.wandb_run import LIBRARIES;"
        "import_libraries((*LIBRARIES, 'not_installed'));"
        "print(threading.active_count(), gc.isenabled(), gc.get_freeze_count() > 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.split() == ["1", "True", "True"]


def test_a_broken_installation_is_the_launchers_to_tell(tmp_path: Path) -> None:
    code = (
        "import sys; from launchers import agent; from launchers.local import launch; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "try:\n    launch(print, {}, Path(sys.argv[1]), hosts=1, ranks_per_host=1)\n"
        "except ImportError as error:\n    print(error)\n"
    )
    (tmp_path / "torchrec.py").write_text("raise ImportError('torchrec is broken')\n")
    line = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "torchrec is broken", done.stderr


def test_errors_travel_as_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        run(refuses, tmp_path)
    assert not isinstance(error.value, RankLost) and error.value.parts["where"] == "model.dim"


def refuses() -> None:
    raise UserError("too small", where="model.dim", given=0)
