"""Tests run in forks of a process that has imported all libraries, and none of our code: a fork imports that, changed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY_BYTES = 8 << 30
WALL_S = 900  # of a child, however little it computes
MOST_EXAMPLES = 30  # that a test draws here
GRACE_S = 20.0  # of CPU time, beside five times what its tests take


@dataclass(frozen=True)
class Outcome:
    """`survived`, `killed` or `timed_out`; `by`: the first test that failed."""

    name: str
    by: str = ""


@dataclass(frozen=True)
class Called:
    """Of the tests of a room: seconds of each, and which call each function (file, qualified name)."""

    seconds: dict[str, float]
    tests_of: dict[tuple[str, str], set[str]]
    modules: list[str]


class Mutated(importlib.machinery.SourceFileLoader):
    """Loads a module from another text than its file's."""

    def __init__(self, fullname: str, path: str, text: str):
        super().__init__(fullname, path)
        self.text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class OneModule(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, path: Path, text: str):
        self.name, self.path, self.text = name, path, text

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        where = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        loader = Mutated(fullname, str(self.path), self.text)
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader, submodule_search_locations=where)


class Selected:
    """A plugin of pytest: only the tests of these names, in this order; what failed first."""

    def __init__(self, names: Sequence[str]):
        self.place = {name: number for number, name in enumerate(names)}
        self.failed = ""

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.place), key=lambda item: self.place[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


class Watched:
    """A plugin of pytest: which of our functions each test calls."""

    def __init__(self, root: Path):
        self.root, self.now = f"{root}/recsys_lab/", ""
        self.seen: dict[str, set[tuple[str, str]]] = {}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def watch(self, frame: Any, event: str, _: Any) -> None:
        """Told of every call of a Python function; None: but not of its lines."""
        if frame.f_code.co_filename.startswith(self.root):
            self.seen[self.now].add((frame.f_code.co_filename, frame.f_code.co_qualname))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.now = nodeid
        self.seen[nodeid] = set()
        self.began = time.process_time()
        sys.settrace(self.watch)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        self.seconds[nodeid] = time.process_time() - self.began

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def called(root: Path, tests: Sequence[str], kept: Path | None = None) -> Called:
    """Runs the tests once as the code is, or reads what an earlier run `kept`. Raises SystemExit where one fails."""

    def watched() -> dict[str, Any]:
        plugin = Watched(root)
        code = _pytest(tests, plugin)
        modules = [name for name, module in sys.modules.items() if not _ours(root, module)]
        seen = {name: sorted(functions) for name, functions in plugin.seen.items()}
        return {"code": int(code), "failed": plugin.failed, "seen": seen, "seconds": plugin.seconds, "modules": modules}

    if kept and kept.is_file():
        found = json.loads(kept.read_text())
    else:
        found, said = in_a_fork(watched, cpu_s=1800, wall_s=3600)
        if found is None or found["code"] != 0:
            raise SystemExit(f"{', '.join(tests)}: the tests fail as the code is: {said if found is None else found['failed']}")
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
    tests_of: dict[tuple[str, str], set[str]] = {}
    for name, functions in found["seen"].items():
        for file, function in functions:
            tests_of.setdefault((os.path.relpath(file, root), _enclosing(function)), set()).add(name)
    return Called(found["seconds"], tests_of, found["modules"])


def preload(modules: Sequence[str]) -> None:
    """Imports libraries here, so that no fork has to, nor looks through what they hold when it collects garbage."""
    for name in modules:
        if name not in sys.modules:
            with contextlib.suppress(Exception):  # what a test put there, or what only its parent can import
                importlib.import_module(name)
    assert "recsys_lab" not in sys.modules, "a fork would not import the changed module"
    gc.collect()
    gc.freeze()


def tried(root: Path, file: str, text: str, names: Sequence[str], cpu_s: float) -> Outcome:
    """Whether the tests of these `names` notice `text` in place of the file's."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def run() -> dict[str, Any]:
        sys.dont_write_bytecode = True
        sys.meta_path.insert(0, OneModule(module, root / file, text))
        plugin, files = Selected(names), dict.fromkeys(name.split("::")[0] for name in names)
        return {"code": int(_pytest([*files], plugin, "-x")), "by": plugin.failed}

    found, said = in_a_fork(run, cpu_s=cpu_s, wall_s=WALL_S)
    if found is None:
        return Outcome("timed_out" if said in ("SIGXCPU", "SIGKILL") else "killed", said)
    return Outcome("survived" if found["code"] in (0, 5) else "killed", found["by"] or f"pytest ends with {found['code']}")


def in_a_fork(work: Callable[[], dict[str, Any]], cpu_s: float, wall_s: float) -> tuple[dict[str, Any] | None, str]:
    """What `work` gives in a child, or None and the signal that ended it, or what it said last."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            _child(work, Path(folder), cpu_s)
        deadline, status = time.monotonic() + wall_s, None
        while status is None:
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                status = code
            elif time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
            else:
                time.sleep(0.02)
        answer = Path(folder) / "answer.json"
        if answer.is_file():
            return json.loads(answer.read_text()), ""
        said = (Path(folder) / "output").read_text(errors="replace")[-1000:]
        return None, signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said


def _child(work: Callable[[], dict[str, Any]], folder: Path, cpu_s: float) -> None:
    try:
        os.setsid()
        out = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        answer = json.dumps(work())
        (folder / "part").write_text(answer)
        os.replace(folder / "part", folder / "answer.json")
    except BaseException:  # noqa: BLE001  the parent sees that there is no answer
        traceback.print_exc()
    finally:
        os._exit(0)


def _pytest(tests: Sequence[str], plugin: object, *more: str) -> int:
    import pytest
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants", phases=(Phase.explicit, Phase.generate), derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    settings.load_profile("mutants")
    made = settings.__init__

    def few(self: Any, *args: Any, **more: Any) -> None:
        made(self, *args, **more | {"max_examples": min(more.get("max_examples") or MOST_EXAMPLES, MOST_EXAMPLES)})

    settings.__init__ = few  # type: ignore[method-assign]  a test says how many it draws itself
    quick = ["-q", "--no-header", "-p", "no:cacheprovider", "--assert=plain", "-m", "not long"]  # plain: tests come from their bytecode
    return pytest.main([*quick, *more, *tests], plugins=[plugin])


def _ours(root: Path, module: Any) -> bool:
    """Of this checkout, but not of a virtual environment in it."""
    file = str(getattr(module, "__file__", ""))
    return file.startswith(f"{root}/") and "site-packages" not in file


def _enclosing(function: str) -> str:
    """Without the comprehensions and lambdas at its end."""
    parts = function.split(".")
    while parts and parts[-1].startswith("<"):
        parts.pop()
    return ".".join(parts)
