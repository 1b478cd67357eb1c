"""Answers that need torch, from a child process, kept in the user's cache folder: the caller imports no torch.

A file of the cache holds one answer. Its name is a digest of the question, of the sources that answer it and of torch's version. A file is
ignored and written again if it is broken, if somebody else could have changed it, or if its model has changed since.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import platform
import select
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from recsys_lab import errors
from recsys_lab.base import paths
from recsys_lab.base.files import why_untrusted, write_text
from recsys_lab.errors import UserError

SCHEMA = 1
PACKAGES = ("torch", "torchrec")
#: A child that is asked nothing for so long ends; the next question starts another.
IDLE_S = 60.0
_LOCK = threading.Lock()
_KEPT: dict[str, dict[str, Any]] = {}  # of this process, by key


def cache_folder() -> Path:
    return paths.user_cache() / "counted"


def answer(function: str, asked: Any, rooms: tuple[str, ...], package: str = "recsys_lab") -> Any:
    """What `function` answers to `asked`. Both are JSON. Where torch is imported already, it is called here.

    Args:
        function: "module:name", called with `asked`.
        rooms: of this package, on whose sources the answer depends.
        package: of the model, where it is the user's own: its files count as well.

    Raises:
        UserError: that of the function.
    """
    if "torch" in sys.modules:
        return _called(function, asked)
    key = _digest([SCHEMA, function, asked, _versions(), sources_of(rooms), os.environ.get("RECSYS_LAB_KERNELS")])
    file = cache_folder() / f"{key}.json"
    with _LOCK:
        entry = _KEPT.get(key) or _read(file, key)
        if entry is None or not _is_current(entry):
            entry = _asked({"function": function, "asked": asked, "rooms": rooms, "package": package}, sources_of(rooms))
            if entry is None:
                return _called(function, asked)  # with torch: where no child can be started, or its error has to be seen whole
            entry["key"] = key
            with contextlib.suppress(OSError, UserError):  # an answer that cannot be kept is an answer
                write_text(file, json.dumps(entry | {"sha256": _digest(entry)}))
        _KEPT[key] = entry
        return json.loads(json.dumps(entry["answer"]))


def _called(function: str, asked: Any) -> Any:
    module, _, name = function.partition(":")
    try:
        return json.loads(json.dumps(getattr(importlib.import_module(module), name)(asked)))
    except (ImportError, OSError) as error:
        raise errors.broken_install(error) or error from None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@functools.cache
def _versions() -> list[str]:
    return [platform.python_version(), *map(importlib.metadata.version, PACKAGES)]


@functools.cache
def sources_of(rooms: tuple[str, ...]) -> str:
    """A digest of the Python files of `rooms`."""
    parts: list[str] = []
    for room in rooms:
        at = paths.PACKAGE / room
        for file in sorted(at.rglob("*.py")) if at.is_dir() else [at.with_suffix(".py")]:
            parts += [str(file.relative_to(paths.PACKAGE)), file.read_text(encoding="utf-8")]
    return _digest(parts)


def _read(file: Path, key: str) -> dict[str, Any] | None:
    """The entry in `file`; None where there is none that can be trusted."""
    try:
        if why_untrusted(file) or why_untrusted(file.parent):
            return None
        entry = json.loads(file.read_text(encoding="utf-8"))
        sealed = entry.pop("sha256")
        return entry if entry["key"] == key and sealed == _digest(entry) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_current(entry: Mapping[str, Any]) -> bool:
    """Whether the user's own files are still those that the answer was made with."""
    return all(_sha256(path) == digest for path, digest in entry["files"].items())


def _sha256(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


class Process(Protocol):
    """As `subprocess.Popen`."""

    def wait(self, timeout: float | None = None) -> Any: ...
    def kill(self) -> None: ...


#: Starts a process that answers what comes through a socket. None: a new interpreter, which imports torch first.
fork: Callable[[socket.socket], Process] | None = None


def _new_interpreter(line: socket.socket) -> Process:
    number, nothing = line.fileno(), subprocess.DEVNULL
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import socket; from recsys_lab import child; child.serve(socket.socket(fileno={number}))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=(number,))


class _Child:
    """A process that answers questions, a line of JSON each."""

    def __init__(self) -> None:
        self.of = os.getpid()
        here, there = socket.socketpair()
        with here, there:
            self.process = (fork or _new_interpreter)(there)
            self.lines = here.makefile("rw", encoding="utf-8")
        atexit.register(self.end)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """Its reply; None where it has ended."""
        try:
            self.lines.write(json.dumps(question) + "\n")
            self.lines.flush()
            return json.loads(self.lines.readline())
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        atexit.unregister(self.end)
        if self.of != os.getpid():
            return
        with contextlib.suppress(OSError):
            self.lines.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
            return
        self.process.kill()
        self.process.wait()


_CHILD: list[_Child] = []  # one at most


def finish() -> None:
    """Ends the child, if there is one."""
    while _CHILD:
        _CHILD.pop().end()


def _asked(question: Mapping[str, Any], sources: str) -> dict[str, Any] | None:
    """The reply of the child. A new child replies where the first has ended or knows an older state of the user's files.

    None where it fails. Raises UserError.
    """
    for _ in range(2):
        if _CHILD and _CHILD[0].of != os.getpid():
            _CHILD.clear()  # of the process that this one was forked from
        if not _CHILD:
            try:
                _CHILD.append(_Child())
            except (OSError, EOFError):
                return None
        reply = _CHILD[0].ask(question)
        if reply is not None and "refused" in reply:
            kind, parts = reply["refused"]
            raise getattr(errors, kind)(parts.pop("what"), **parts)
        if reply is not None and "answer" in reply and reply["sources"] == sources and _is_current(reply):
            return {"answer": reply["answer"], "files": reply["files"]}
        _CHILD.pop().end()
    return None


def serve(line: socket.socket) -> None:
    """Answers questions that come through `line` until it ends, or is silent for `IDLE_S`. What libraries print is lost."""
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    asked, replies = line.makefile("r", encoding="utf-8"), line.makefile("w", encoding="utf-8")
    seen: dict[str, str | None] = {}
    while select.select([line], [], [], IDLE_S)[0] and (words := asked.readline()):
        question = json.loads(words)
        try:
            reply: dict[str, Any] = {"answer": _called(question["function"], question["asked"])}
            reply["sources"] = sources_of(tuple(question["rooms"]))
            files = _files_of_user(question["package"])
            seen |= {path: _sha256(path) for path in files if path not in seen}  # as they were when they were imported
            reply["files"] = {path: seen[path] for path in files}
        except UserError as error:
            kind = type(error).__name__
            parts = {name: None if part is None else str(part) for name, part in error.parts.items()}
            reply = {"refused": [kind if hasattr(errors, kind) else UserError.__name__, parts]}
        except Exception as error:  # noqa: BLE001  the caller calls the function itself, and shows its traceback
            reply = {"failed": repr(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _files_of_user(package: str) -> list[str]:
    """The files of imported modules that are neither Python's, nor ours, nor of an installed package other than `package`."""
    found = {name: str(file) for name, module in list(sys.modules.items()) if (file := getattr(module, "__file__", None))}
    return sorted({file for name, file in found.items() if _is_users(name, Path(file), package)})


def _is_users(name: str, file: Path, package: str) -> bool:
    top = name.partition(".")[0]
    if top in ("recsys_lab", "__main__") or top in sys.stdlib_module_names:
        return False
    return top == package or not _within(file, _installed())


def _within(file: Path, folders: Iterable[Path]) -> bool:
    return any(file.is_relative_to(folder) for folder in folders)


@functools.cache
def _installed() -> tuple[Path, ...]:
    of_python = (Path(path) for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple({*of_python, *(Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages")))})
