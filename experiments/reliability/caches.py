"""Caches for one test alone, in which the compiled kernels are there already: compiling them takes longer than most runs."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from threading import Lock

from recsys_lab.kernels import build

_COPYING = Lock()


def with_kernels(cache: Path) -> Path:
    """`cache`, to be named by XDG_CACHE_HOME, with this machine's kernels in it; as it is where there is no compiler."""
    with _COPYING, contextlib.suppress(build.CannotBuild):
        compiled = build.built().parent
        own = cache / "recsys_lab" / "kernels" / compiled.name
        if not own.exists():
            shutil.copytree(compiled, own)
    return cache
