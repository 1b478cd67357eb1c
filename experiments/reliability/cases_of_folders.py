"""Cases of run folders and of the file system: broken records under show, compare and resume, and folders that cannot be written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from experiments.reliability.hostile import DOCUMENTED, REFUSED, Case, run_all

SIMULATED = ("mode=simulate", "logger=none", "data=random", "data.rows_train=2000", "data.rows_validation=500", "data.rows_test=500")
TRAINED = (
    "mode=train",
    "logger=none",
    "data=synthetic_brief",
    "data.rows_train=1000",
    "data.batch_size=100",
    "trainer.checkpoint_every_steps=3",
    "launcher.hosts=1",
    "launcher.ranks_per_host=1",
    "model.embedding_dim=4",
    "model.bottom_layers=[4]",
    "model.over_layers=[4,1]",
    "sharder=torchrec_row_wise",
)
FILES = ("config.yaml", "result.json", "plan.json", "environment.json", ".hydra/overrides.yaml", "metrics.csv")
#: What is done to a file of a run.
BREAK: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda whole: None,
    "empty": lambda whole: b"",
    "cut in half": lambda whole: whole[: len(whole) // 2],
    "zeros": lambda whole: b"\0" * len(whole),
    "not UTF-8": lambda whole: b"\xff\xfe" + whole,
    "a number": lambda whole: b"5\n",
    "null": lambda whole: b"null\n",
    "a list": lambda whole: b"[1, 2]\n",
    "an empty mapping": lambda whole: b"{}\n",
    "another mapping": lambda whole: b'{"nope": {"a": [1]}}\n',
    "deeply nested": lambda whole: b"[" * 20000,
    "nan": lambda whole: b"NaN\n",
}
#: What `show` and `resume` cannot do without.
NEEDED = {"show": "result.json", "compare": "result.json"}
STAYS = ("deleted",)


def runs(folder: Path, trains: bool) -> dict[str, Path]:
    """A run that only simulated and, where `trains`, one that trained, made once for all cases."""
    wanted = {"simulated": SIMULATED} | ({"trained": TRAINED} if trains else {})
    made = {name: folder / name for name in wanted}
    cases = [Case("folders", name, (*words, f"hydra.run.dir={made[name]}"), DOCUMENTED) for name, words in wanted.items()]
    for ended in run_all(cases, folder / "making", 1):
        assert ended.code == 0, ended
    return made


def cases(made: dict[str, Path]) -> Iterator[Case]:
    simulated = made["simulated"]
    for file in FILES:
        for name, change in BREAK.items():
            prepare = partial(_broken, simulated, file, change)
            for command in ("show", "compare", "resume"):
                yield _case(command, f"{file} is {name}", prepare, _right(command, file, name))
    for key, value in _wrong_records():
        prepare = partial(_record, simulated, key, value)
        for command in ("show", "compare"):
            yield _case(command, f"result.json: {key} is {json.dumps(value)[:20]}", prepare, DOCUMENTED)
    yield from _unwritable()
    if "trained" in made:
        yield from _checkpoints(made["trained"])


def _case(command: str, name: str, prepare: Callable[[Path], object], expected: frozenset[int]) -> Case:
    words = {"show": ("show", "{here}/run"), "compare": ("compare", "{here}/run", "{here}/run"), "resume": ("resume={here}/run",)}[command]
    program = "run" if command == "resume" else "recsys_lab"
    return Case("folders", f"{command}: {name}", words, expected, prepare=prepare, program=program)


def _right(command: str, file: str, name: str) -> frozenset[int]:
    if file == "config.yaml" and command == "resume":
        return REFUSED
    if file == "result.json" and command in ("show", "compare"):
        return REFUSED
    return DOCUMENTED


def _broken(run: Path, file: str, change: Callable[[bytes], bytes | None], here: Path) -> None:
    shutil.copytree(run, here / "run", symlinks=True)
    path = here / "run" / file
    whole = path.read_bytes() if path.exists() else b"{}"
    made = change(whole)
    path.unlink(missing_ok=True)
    if made is not None:
        path.write_bytes(made)


def _wrong_records() -> Iterator[tuple[str, Any]]:
    for key in ("schema", "status", "mode", "seed", "choices", "quality", "plan", "measured", "simulated", "config_fingerprint"):
        for value in (None, 5, "x", [1], {}, {"a": 1}, float("nan"), [[{}]]):
            yield key, value


def _record(run: Path, key: str, value: Any, here: Path) -> None:
    shutil.copytree(run, here / "run", symlinks=True)
    path = here / "run" / "result.json"
    record = json.loads(path.read_text())
    record[key] = value
    path.write_text(json.dumps(record))


def _unwritable() -> Iterator[Case]:
    quick = ("mode=plan", "logger=none", "data=random")

    def case(name: str, folder: str, expected: frozenset[int] = REFUSED, **more: Any) -> Case:
        return Case("folders", f"run folder: {name}", (*quick, f"hydra.run.dir={folder}"), expected, **more)

    yield case("a file", "{here}/file", prepare=_file)
    yield case("below a file", "{here}/file/run", prepare=_file)
    yield case("a link to nothing", "{here}/link/run", prepare=_loop)
    yield case("a link to itself", "{here}/loop/run", prepare=_loop)
    yield case("/proc", "/proc/run")
    yield case("/dev/null", "/dev/null")
    yield case("/dev/full", "/dev/full/run")
    yield case("/sys", "/sys/run")
    yield case("a name of 300 characters", "{here}/" + "x" * 300)
    yield case("a path of 5000 characters", "{here}/" + "/".join(["x" * 200] * 25))
    yield case("a NUL-like name", "{here}/'a\\0b'", DOCUMENTED)
    yield case("a backslash at the end", "{here}/a\\", DOCUMENTED - REFUSED)
    yield case("two backslashes at the end", "{here}/a\\\\", DOCUMENTED - REFUSED)
    yield case("a quote", "'{here}/it\\'s'", DOCUMENTED - REFUSED)
    yield case("a new line", "'{here}/a\nb'", DOCUMENTED)
    yield case("an interpolation", "'{here}/\\${seed}'", DOCUMENTED)
    yield case("not UTF-8", "{here}/\udcff")
    yield case("a number", "5", DOCUMENTED - REFUSED)
    for most in (0, 100, 3000):
        yield case(f"a disk that is full after {most} bytes", "{here}/run", most_file_bytes=most)
    for file in ("config.yaml", "plan.json", "result.json", ".hydra", "report.html", "trace.json", "metrics.csv", "environment.json"):
        yield case(f"{file} is a folder", "{here}/run", DOCUMENTED, prepare=partial(_folder_inside, file))
        yield case(f"{file} is a link to nothing", "{here}/run", DOCUMENTED, prepare=partial(_link_inside, file))


def _file(here: Path) -> None:
    (here / "file").write_text("mine")


def _loop(here: Path) -> None:
    (here / "loop").symlink_to(here / "loop")
    (here / "link").symlink_to(here / "no" / "such" / "folder" / "anywhere")


def _folder_inside(name: str, here: Path) -> None:
    (here / "run" / name / "theirs").mkdir(parents=True)


def _link_inside(name: str, here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / name).symlink_to("/nope/nothing")


def _checkpoints(run: Path) -> Iterator[Case]:
    """Of a run whose record is gone, so that resume reads its newest checkpoint."""
    newest = max((run / "checkpoints").glob("step=*"), key=lambda path: int(path.name.split("=")[1]))
    for path in sorted(p for p in newest.iterdir() if p.is_file()):
        file = path.relative_to(run)
        changes: dict[str, Callable[[bytes], bytes | None]] = BREAK | {
            "flipped in the middle": lambda whole: (
                whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 0x41]) + whole[len(whole) // 2 + 1 :]
            ),
            "flipped at the end": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
            "longer": lambda whole: whole + b"x",
        }
        for name, change in changes.items():
            prepare = partial(_broken_checkpoint, run, str(file), change)
            yield Case("folders", f"resume: {file.name} is {name}", ("resume={here}/run",), prepare=prepare)
    for name in ("step=abc", "step=", "step=-1", "step=999999"):
        prepare = partial(_odd_step, run, newest.name, name)
        yield Case("folders", f"resume: a checkpoint is called {name}", ("resume={here}/run",), DOCUMENTED, prepare=prepare)


def _broken_checkpoint(run: Path, file: str, change: Callable[[bytes], bytes | None], here: Path) -> None:
    _broken(run, file, change, here)
    (here / "run" / "result.json").unlink()


def _odd_step(run: Path, newest: str, name: str, here: Path) -> None:
    shutil.copytree(run, here / "run", symlinks=True)
    (here / "run" / "result.json").unlink()
    os.rename(here / "run" / "checkpoints" / newest, here / "run" / "checkpoints" / name)
