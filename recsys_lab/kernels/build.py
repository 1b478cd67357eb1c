"""Compiles the C++ kernels at first use, into a folder of the user's cache, and loads them.

The folder is named by a digest of the sources, the compiler, its flags and the processor. So nothing stale is ever loaded. A library is
compiled again if somebody else could have put it there, or if it is not the one that was built. Ranks that start at once wait for the
first. RECSYS_LAB_KERNELS=torch keeps to PyTorch.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recsys_lab.base import paths
from recsys_lab.base.environment import KERNELS, word_of
from recsys_lab.base.files import why_untrusted

SOURCES = Path(__file__).parent / "csrc"
COMPILERS = ("g++", "c++")
#: No product is contracted with a sum: so that every machine gives the bits of the torch definition.
FLAGS = ("-std=c++20", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-fPIC")
ABOUT = "built.json"
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
        if found := shutil.which(name):
            return found
    raise CannotBuild(f"no C++ compiler ({named or ', '.join(COMPILERS)} not found)")


def cache_folder() -> Path:
    return paths.user_cache() / "kernels"


def built() -> Path:
    """The library's file."""
    command = (compiler(), *FLAGS)
    folder = cache_folder() / digest(command)
    target = folder / "kernels.so"
    if is_ours(folder):
        return target
    try:
        _take(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CannotBuild(f"{folder} cannot be written ({error.strerror}); XDG_CACHE_HOME names another folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ours(folder):
            _compile(command, folder, target)
        if not is_ours(folder):
            raise CannotBuild(f"others could change the kernels in {folder}; XDG_CACHE_HOME names another folder")
    finally:
        os.close(lock)
    return target


def is_ours(folder: Path) -> bool:
    """Whether the library in `folder` is the one that was built there. Only this user and root may have been able to change it since."""
    target, about = folder / "kernels.so", folder / ABOUT
    try:
        if any(map(why_untrusted, (folder, target, about))):
            return False
        return json.loads(about.read_text(encoding="utf-8"))["sha256"] == _sha256(target)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _take(folder: Path) -> None:
    """Makes `folder` in the cache, and takes from others the right to write to either. One that is a link or somebody else's goes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _close(folder.parent)
    if folder.is_symlink():
        folder.unlink()
    elif folder.is_dir() and folder.stat().st_uid not in (0, os.geteuid()):
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    _close(folder)


def _close(folder: Path) -> None:
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(folder.stat().st_mode & 0o755)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(command: tuple[str, ...]) -> str:
    """Of all that the machine code depends on."""
    parts = [*command, _output(command[0], "--version"), processor()]
    for path in sorted(SOURCES.iterdir()):
        parts += [path.name, path.read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _compile(command: tuple[str, ...], folder: Path, target: Path) -> None:
    files = sorted(SOURCES.glob("*.cpp"))
    say(f"compiling {len(files)} files with {command[0]}, once on this machine (a minute or two)")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        objects = [Path(place) / f"{file.stem}.o" for file in files]
        with ThreadPoolExecutor(max_workers=min(len(files), os.cpu_count() or 1)) as pool:
            list(pool.map(lambda pair: _run(*command, "-w", "-c", str(pair[0]), "-o", str(pair[1])), zip(files, objects)))
        made = Path(place) / "kernels.so"
        _run(command[0], "-shared", "-fopenmp", *map(str, objects), "-o", str(made))
        seconds = round(time.monotonic() - began, 1)
        made.chmod(0o755)
        about = {"command": [*command], "compiler": _output(command[0], "--version").splitlines()[0], "processor": processor()}
        told = Path(place) / ABOUT
        told.write_text(json.dumps(about | {"seconds": seconds, "sha256": _sha256(made)}, indent=1), encoding="utf-8")
        told.chmod(0o644)
        os.replace(told, folder / ABOUT)
        os.replace(made, target)
    say(f"compiled in {seconds} s into {folder}")


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
