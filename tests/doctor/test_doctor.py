"""The doctor finds this machine fit, and each kind of fault with what to do about it."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

import pytest
from rich.console import Console

from recsys_lab import errors
from recsys_lab.commands import doctor as command
from recsys_lab.doctor import examine, trials, versions
from recsys_lab.doctor.row import BROKEN, OK, WARNING, Row

HERE = {"torch": "2.13.0+cpu", "torchrec": "1.8.0", "fbgemm-gpu-cpu": "1.8.0"}


def given(monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], cuda: str | None = None, gpu: bool = False) -> None:
    monkeypatch.setattr(versions, "installed", packages.get)
    monkeypatch.setattr(versions, "_torch_cuda", lambda: cuda)
    monkeypatch.setattr(versions, "_has_gpu", lambda: gpu)


def test_this_machine_is_fit_and_json_says_the_same_as_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(["--json"])
    said = json.loads(capsys.readouterr().out)
    assert (code, said["ok"]) == (0, True)
    assert {row["area"] for row in said["rows"]} == {"versions", "devices", "kernels", "backends"}
    by_name = {row["name"]: row for row in said["rows"]}
    for name in ("the triple", "FBGEMM on the CPU", "gloo"):
        assert by_name[name]["state"] == OK, by_name[name]
    assert all(bool(row["remedy"]) == (row["state"] != OK) for row in said["rows"])


def test_the_matched_triple_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, HERE)
    assert [row.state for row in versions.triple_rows()] == [OK] * 4


@pytest.mark.parametrize(
    ("packages", "cuda", "wrong", "says"),
    [
        (HERE | {"torch": "2.14.1"}, None, "torch", "2.14.1, not 2.13"),
        (HERE | {"torch": "2.130.0"}, None, "torch", "2.130.0, not 2.13"),
        (HERE | {"torchrec": "1.7.0"}, None, "torchrec", "1.7.0, not 1.8"),
        (HERE | {"fbgemm-gpu-cpu": "1.2.0"}, None, "fbgemm-gpu-cpu", "1.2.0, not 1.8"),
        ({"torch": "2.13.0", "torchrec": "1.8.0"}, None, "fbgemm-gpu-cpu", "not installed"),
        (HERE, "13.0", "the triple", "torch for CUDA 13.0 with fbgemm for CPU"),
        ({"torch": "2.13.0", "torchrec": "1.8.0", "fbgemm-gpu": "1.8.0"}, None, "the triple", "torch for CPU with fbgemm for CUDA"),
    ],
)
def test_a_triple_that_does_not_match_is_broken_and_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], cuda: str | None, wrong: str, says: str
) -> None:
    given(monkeypatch, packages, cuda, gpu=cuda is not None)
    rows = {row.name: row for row in versions.triple_rows()}
    assert rows[wrong].state == BROKEN
    assert says in rows[wrong].found
    assert "make env" in rows[wrong].remedy
    assert rows["the triple"].state == BROKEN


@pytest.mark.parametrize("other", ["0.4.1", "1.9.0"])
def test_of_two_builds_of_fbgemm_the_files_of_the_wanted_one_must_lie_there(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    given(monkeypatch, HERE | {"fbgemm-gpu": other})
    rows = {row.name: row for row in versions.triple_rows()}
    assert rows["the triple"].state == OK  # those of this environment
    monkeypatch.setattr(versions, "has_its_files", lambda package: False)
    wrong = versions.triple_rows()[-1]
    assert (wrong.state, wrong.found) == (BROKEN, "both builds of fbgemm, one over the other")
    assert wrong.remedy == "python -m pip install --force-reinstall --no-deps fbgemm-gpu-cpu==1.8.0"


@pytest.mark.parametrize(("gpu", "build"), [(False, "fbgemm-gpu-cpu"), (True, "fbgemm-gpu")])
def test_a_gpu_decides_which_build_of_fbgemm_is_wanted(monkeypatch: pytest.MonkeyPatch, gpu: bool, build: str) -> None:
    """PyPI's torch is built for CUDA on any machine: pip install recsys_lab[cpu] brings it."""
    given(monkeypatch, HERE | {"torch": "2.13.0", "fbgemm-gpu": "1.8.0"}, "13.0", gpu)
    monkeypatch.setattr(versions, "has_its_files", lambda package: package == build)
    assert versions.triple_rows()[-1].state == OK
    monkeypatch.setattr(versions, "has_its_files", lambda package: package != build)
    assert f"--no-deps {build}" in versions.triple_rows()[-1].remedy
    given(monkeypatch, HERE, "13.0", gpu)
    assert versions.triple_rows()[-1].state == (BROKEN if gpu else OK)


def test_files_that_another_package_wrote_over_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class File(PurePosixPath):
        size = 4

        def locate(self) -> Path:
            return tmp_path / self

    monkeypatch.setattr(versions, "files", lambda package: [File("one.so"), File("two.py")])
    (tmp_path / "one.so").write_bytes(b"1234")
    assert versions.has_its_files("fbgemm-gpu-cpu")
    (tmp_path / "one.so").write_bytes(b"12345")
    assert not versions.has_its_files("fbgemm-gpu-cpu")


def test_the_cuda_triple_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {"torch": "2.13.0", "torchrec": "1.8.0", "fbgemm-gpu": "1.8.0"}, "13.0")
    assert versions.triple_rows()[-1].found == "matches, for CUDA 13.0"


def test_another_python_is_broken() -> None:
    assert versions.python_row((3, 11, 9)).state == OK
    assert versions.python_row((3, 12, 1)).state == OK
    assert versions.python_row((3, 13, 0)).state == BROKEN


def locked(path: Path) -> dict[str, str]:
    """Version by package name of a lock file."""
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return {re.sub(r"[-_.]+", "-", name).lower(): pinned for name, _, pinned in (line.partition("==") for line in lines if line)}


def test_every_lock_is_complete_and_the_two_differ_only_in_what_cuda_needs() -> None:
    cpu, cuda = (locked(versions.ROOT / "requirements" / f"{name}.txt") for name in ("cpu", "cuda"))
    assert len(cpu) > 90
    assert set(cpu) - set(cuda) == {"fbgemm-gpu-cpu"}
    assert all(name.startswith(("nvidia-", "cuda-")) or name in ("triton", "fbgemm-gpu") for name in set(cuda) - set(cpu))
    assert all(cuda[name] == cpu[name] for name in set(cpu) & set(cuda))
    assert all(pinned and pinned[0].isdigit() for pinned in [*cpu.values(), *cuda.values()])


def test_a_rank_that_cannot_exchange_is_told_of_and_leaves_nothing() -> None:
    assert "rank 0" in (trials.exchange_between_processes("no_such_backend", 1) or "")
    assert trials.exchange_between_processes("gloo", 2, timeout_s=0.01) == "no answer within 0.01 s"


def test_a_look_that_fails_is_a_row_and_makes_the_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> Row:
        raise ImportError("libfbgemm.so: cannot open")

    monkeypatch.setattr(examine, "LOOKS", (("kernels", "FBGEMM on the CPU", fails),))
    assert command.main([]) == 2
    said = capsys.readouterr().out
    assert "broken" in said
    assert "libfbgemm.so" in said
    assert "make env" in said


def test_a_library_of_fbgemm_that_cannot_be_loaded_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Row:
        raise OSError("Could not load this library: /site-packages/fbgemm_gpu/fbgemm_gpu_py.so")

    monkeypatch.setattr(examine, "LOOKS", (("kernels", "FBGEMM on the CPU", fails),))
    assert "--force-reinstall --no-deps fbgemm-gpu-cpu==1.8.0" in examine.examine()[0].remedy


def test_warnings_alone_leave_the_machine_fit() -> None:
    console = Console(record=True, width=120)
    command.show([Row("devices", "GPU", WARNING, "torch cannot use it", "make env LOCK=cuda")], console)
    assert "can work (warnings: 1)" in console.export_text()


def test_the_cuda_build_without_a_driver_is_told_from_a_broken_one() -> None:
    """A cluster's login host has no GPU: its FBGEMM is whole, and installing it again would not help."""
    lacks = OSError("libnvidia-ml.so.1: cannot open shared object file: No such file or directory")
    broken = OSError("Could not load this library: site-packages/fbgemm_gpu/fbgemm_gpu_py.so")
    broken.__cause__ = lacks
    mistake = errors.broken_install(broken)
    assert mistake is not None and "NVIDIA's driver" in str(mistake) and "libnvidia-ml.so.1" in str(mistake)
    assert "force-reinstall" not in str(mistake)
    broken.__cause__ = None
    assert "force-reinstall" in str(errors.broken_install(broken))
