"""Answers that need torch, kept in the user's cache folder by joblib: who asks the same again imports no torch.

An answer is found by its question, by the sources that it depends on and by the versions of Python, torch and TorchRec. joblib keeps
pickles, so the folder is used only where nobody but its user could have written into it. Without it an answer only takes longer.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import logging
import platform
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recsys_lab import errors
from recsys_lab.base import paths
from recsys_lab.base.files import why_untrusted

PACKAGES = ("torch", "torchrec")
_LOCK = threading.Lock()  # threads that ask the same wait for one answer


def cache_folder() -> Path:
    return paths.user_cache() / "answers"


def answer(function: Callable[[Any], Any], question: Any, rooms: tuple[str, ...]) -> Any:
    """What `function` answers to `question`, from the cache where it is there. Both are JSON.

    Args:
        function: of a module, the same for the same question. It imports torch itself.
        question: all that the answer depends on beside `rooms`.
        rooms: of this package, on whose sources the answer depends.

    Raises:
        UserError: that of the function, or where torch cannot be imported.
    """
    name, text = f"{function.__module__}:{function.__qualname__}", json.dumps(question, sort_keys=True)
    folder = cache_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why_untrusted(folder):
            return answered(function, name, text, [])
        from joblib import Memory  # 50 ms, which only who asks pays

        logging.getLogger("joblib").setLevel(logging.CRITICAL)  # where it cannot read a file, it says so and computes again
        warnings.filterwarnings("ignore", module="joblib")  # where it cannot write one
        kept = Memory(folder, verbose=0).cache(answered, ignore=["function"])
        with _LOCK:
            return kept(function, name, text, [*versions(), *map(sources_of, rooms)])
    except OSError:  # of the folder: those of the function are UserErrors
        return answered(function, name, text, [])


def answered(function: Callable[[Any], Any], name: str, text: str, depends_on: list[str]) -> Any:
    """What joblib keeps, by all but `function`."""
    try:
        return json.loads(json.dumps(function(json.loads(text))))
    except (ImportError, OSError) as error:
        raise errors.broken_install(error) or RuntimeError(f"{name} cannot be answered: {error}") from error


@functools.cache
def versions() -> list[str]:
    return [platform.python_version(), *map(importlib.metadata.version, PACKAGES)]


@functools.cache
def sources_of(room: str) -> str:
    """A digest of the room's Python files."""
    digest, at = hashlib.sha256(), paths.PACKAGE / room
    for file in sorted(at.rglob("*.py")) if at.is_dir() else [at.with_suffix(".py")]:
        digest.update(f"{file.relative_to(paths.PACKAGE)}\n".encode() + file.read_bytes())
    return digest.hexdigest()
