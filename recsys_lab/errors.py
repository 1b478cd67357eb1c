"""The errors that a user sees. Each is one line: what is wrong, where, what was given, what is allowed, and what to do.

Exit codes: 0 done, 1 our bug (any other exception, with its traceback), 2 `UserError`, 3 `PlanDoesNotFit`, 4 `RankLost`,
5 `LimitPassed`, 129 `HungUp`, 130 Ctrl-C, 143 `Terminated`.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

#: What the operating system says when a folder cannot be written: the user's to mend, not a bug of ours.
UNWRITABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.EFBIG,
    errno.ELOOP,
    errno.EIO,
    errno.ESTALE,
    errno.ENXIO,
    errno.EBUSY,
    errno.EMFILE,
    errno.ENFILE,
}


#: Whether pip installed this package. Then no run.py lies where the user is.
INSTALLED = Path(__file__).with_name("checkout").is_dir()


def as_called(text: str) -> str:
    """`text` with the command that the user has: that of a checkout, or what pip installed."""
    return text.replace("python run.py", "recsys-lab run") if INSTALLED else text


class UserError(Exception):
    """A mistake that the user can mend. `str(error)` is one line, in which nothing but printable characters stands as it is."""

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        given: object = None,
        allowed: object = None,
        remedy: str | None = None,
    ):
        self.parts = {"what": what, "where": where, "given": given, "allowed": allowed, "remedy": remedy}
        line = f"{where}: {what}" if where is not None else what
        if given is not None:
            line += f"; given {given}" if str(given).strip() else f"; given {str(given)!r}"
        if allowed is not None:
            line += f"; allowed: {allowed}"
        if remedy is not None:
            line += f"; {remedy}"
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(as_called(line).split())))

    def __reduce__(self):  # exceptions travel from a rank to the launcher
        return (_rebuild, (type(self), {k: v if v is None else str(v) for k, v in self.parts.items()}))


class PlanDoesNotFit(UserError):
    """The plan needs more memory than a rank of the cluster has. It says how much, and the nearest change that would fit.

    `needed`: bytes of each rank, where they are known; they do not travel between processes.
    """

    exit_code = 3
    needed: tuple[int, ...] = ()


class HotRankDoesNotFit(PlanDoesNotFit):
    """The same of a plan that would fit if all ranks served as many rows: the remedy is another plan, not more memory."""


class RankLost(UserError):
    """A process or a host went away during a run. Says which, and how to resume."""

    exit_code = 4


class LimitPassed(UserError):
    """A limit that the caller set on time, memory or cost is passed. It says by how much."""

    exit_code = 5


class Terminated(BaseException):
    """SIGTERM: what SLURM and Kubernetes send before they kill. No mistake and no bug, so nothing that handles errors handles it."""

    exit_code = 143  # 128 + 15, as of a process that the signal ended


class HungUp(Terminated):
    """SIGHUP: the terminal was closed, or the connection to it broke."""

    exit_code = 129


def cause(error: BaseException) -> BaseException:
    """The SIGTERM or Ctrl-C that led to `error`: a library that cleans up after one may raise an error of its own. Else `error`."""
    before: BaseException | None = error
    while before is not None:
        if isinstance(before, KeyboardInterrupt | Terminated):
            return before
        before = before.__context__
    return error


def _rebuild(kind: type[UserError], parts: dict) -> UserError:
    return kind(parts.pop("what"), **parts)


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed spelling closest to `given`, if any is close. Capitals do not count."""
    spelt = {one.lower(): one for one in allowed}
    matches = difflib.get_close_matches(given.lower(), list(spelt), n=5, cutoff=0.5)
    return spelt[min(matches, key=lambda one: _edits(given.lower(), one))] if matches else None


def _edits(given: str, word: str) -> tuple[int, int]:
    """Letters to insert, drop, change, or swap with the next (Damerau's distance); then how much longer one of the two is."""
    above, row = list[int](), list(range(len(word) + 1))
    for i, letter in enumerate(given, start=1):
        before, above, row = above, row, [i]
        for j, other in enumerate(word, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other)))
            if j > 1 and before and given[i - 2 : i] == word[j - 2 : j][::-1]:
                row[j] = min(row[j], before[j - 2] + 1)
    return row[-1], abs(len(given) - len(word))


def did_you_mean(given: str, allowed: Iterable[str]) -> str | None:
    """`did you mean 'dcn'?`, or None when nothing is close."""
    match = nearest(given, allowed)
    return f"did you mean '{match}'?" if match else None


def cannot_write(error: OSError, where: object) -> UserError:
    """The user's mistake that `error` is, met when writing to `where`."""
    return UserError(
        f"cannot write: {error.strerror}",
        where=error.filename or where,
        remedy="choose a writable folder with free space (a run: hydra.run.dir=DIR, a sweep: hydra.sweep.dir=DIR)",
    )


def cannot_read(error: OSError, where: object) -> UserError:
    """The same, met when reading `where`."""
    return UserError(f"cannot read: {error.strerror}", where=error.filename or where, remedy="check the file and its permissions")


def unwritable(error: OSError, where: object) -> UserError | None:
    """`error` as the user's mistake, if the operating system refused to write to `where`; None if it is something else."""
    return cannot_write(error, where) if error.errno in UNWRITABLE else None


#: Libraries that come with NVIDIA's driver, which a host without a GPU lacks.
OF_DRIVER = ("libnvidia-ml.so", "libcuda.so")
#: What an extra of ours installs beside the package itself.
OF_EXTRAS = ("torch", "torchrec", "fbgemm_gpu", "lightning", "tensordict", "torchmetrics")


def broken_install(error: BaseException) -> UserError | None:
    """`error` as the user's mistake, if a package of the extras is missing or FBGEMM's libraries cannot be loaded; None otherwise."""
    if isinstance(error, ModuleNotFoundError) and error.name in OF_EXTRAS:
        return UserError("not installed", where=error.name, remedy="pip install 'recsys_lab[cpu]', or [cuda] where there is a GPU")
    if not isinstance(error, OSError | ImportError) or "fbgemm_gpu" not in str(error):
        return None
    cause = error.__cause__ or error
    if any(library in str(cause) for library in OF_DRIVER):
        remedy = "run where NVIDIA's driver is, or install for a CPU: make env LOCK=cpu, pip install 'recsys_lab[cpu]'"
        return UserError("FBGEMM's libraries for CUDA need NVIDIA's driver", where="fbgemm_gpu", given=cause, remedy=remedy)
    remedy = f"mend it with: {fbgemm_again()}; recsys-lab doctor says more"
    return UserError("FBGEMM's libraries cannot be loaded", where="fbgemm_gpu", given=error, remedy=remedy)


def fbgemm_again(build: str = "fbgemm-gpu-cpu") -> str:
    """The command that puts the files of one build of FBGEMM in the place of the other's: both write into one folder."""
    try:
        release = f"=={metadata.version(build)}"
    except metadata.PackageNotFoundError:
        release = ""
    return f"python -m pip install --force-reinstall --no-deps {build}{release}"
