"""Compiles the C++ kernels at first use, into a folder of the user's cache, and loads them.

The folder is named by a digest of the sources, the compiler, its flags and the processor. So nothing stale is ever loaded. Ranks that start
at once wait for the first. RECSYS_LAB_KERNELS=torch keeps to PyTorch.

A plain call of the compiler: `torch.utils.cpp_extension` needs ninja, and its lock file outlives a process that is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from recsys_lab.base import paths
from recsys_lab.base.environment import KERNELS, word_of

SOURCES = Path(__file__).parent / "csrc"
COMPILERS = ("g++", "c++")
#: No product is contracted with a sum: so that every machine gives the bits of the torch definition.
FLAGS = ("-std=c++20", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-fPIC")
TIMEOUT_S = 600


class CannotBuild(Exception):
    """Why there is no library, in one line."""


@functools.cache
def library() -> ctypes.CDLL:
    """The kernels, compiled where that has not been done before. Raises CannotBuild."""
    if word_of(KERNELS) == "torch":
        raise CannotBuild(f"{KERNELS}=torch")
    import torch  # noqa: F401 - brings the OpenMP runtime whose threads the kernels share

    try:
        return ctypes.CDLL(str(built()))
    except OSError as error:
        raise CannotBuild(f"the compiled kernels cannot be loaded: {error}") from None


def compiler() -> str:
    """Full path. CXX names another."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        if path := shutil.which(name):
            return path
    raise CannotBuild(f"no C++ compiler ({named or ', '.join(COMPILERS)} not found)")


def cache_folder() -> Path:
    return paths.user_cache() / "kernels"


def built() -> Path:
    """The library's file."""
    command = (compiler(), *FLAGS)
    target = cache_folder() / digest(command) / "kernels.so"
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name("lock")):
            if not target.exists():
                _compile(command, target)
    except OSError as error:
        raise CannotBuild(f"{target.parent} cannot be written ({error.strerror}); XDG_CACHE_HOME names another folder") from None
    return target


def digest(command: tuple[str, ...]) -> str:
    """Of all that the machine code depends on."""
    parts = [*command, _output(command[0], "--version"), processor()]
    for path in sorted(SOURCES.iterdir()):
        parts += [path.name, path.read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _compile(command: tuple[str, ...], target: Path) -> None:
    """Each file at once, then all of them into `target`, which is there whole or not at all."""
    files = sorted(SOURCES.glob("*.cpp"))
    say(f"compiling {len(files)} files with {command[0]}, once on this machine (a minute or two)")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        objects = [Path(folder) / f"{file.stem}.o" for file in files]
        with ThreadPoolExecutor(max_workers=min(len(files), os.cpu_count() or 1)) as pool:
            list(pool.map(lambda pair: _run(*command, "-w", "-c", str(pair[0]), "-o", str(pair[1])), zip(files, objects)))
        linked = Path(folder) / target.name
        _run(command[0], "-shared", "-fopenmp", *map(str, objects), "-o", str(linked))
        os.replace(linked, target)
    say(f"compiled in {time.monotonic() - began:.1f} s into {target.parent}")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{command[0]} failed: {error}") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["no message"]
        raise CannotBuild(f"{command[0]} failed: {errors[0][:200]}")


def _output(*command: str) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout
    return ""


def processor() -> str:
    """Its architecture and instruction sets: code for one is not always code for another."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return f"{platform.machine()} {' '.join(sorted(line.partition(':')[2].split()))}"
    return f"{platform.machine()} {platform.processor()}"


def say(line: str) -> None:
    print(f"kernels: {line}", file=sys.stderr, flush=True)
