"""A folder and its owner. One process owns it at a time. Only what a run writes is ever removed from it.

The kernel releases the lock when the process ends, however it ends. A lock file that is left says that the process was killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from recsys_lab.errors import UserError, cannot_write

if TYPE_CHECKING:
    from filelock import FileLock

LOCK_FILE = ".recsys_lab.lock"
#: What a network file system without locks says. A run goes on there, and its config alone says whose the folder is.
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
#: All that a run writes into its folder. Whatever else lies there is somebody's.
RUN_WRITES = (
    "config.yaml",
    ".hydra/config.yaml",
    ".hydra/hydra.yaml",
    ".hydra/overrides.yaml",
    "plan.json",
    "plan_here.json",
    "reasons.json",
    "stores.json",
    "trace.json",
    "environment.json",
    "metrics.csv",
    "progress.json",
    "result.json",
    "report.html",
    "kubernetes.yaml",
    "skypilot.yaml",
    "slurm.sh",
    "table.md",
    "table.csv",
    "plot.svg",
    "plot.png",
    "logs/rank*.log",
    "logs/slurm_*.txt",
    "vocabulary/vocabulary.json",
    "vocabulary/vocabulary.parquet",
    "vocabulary/row_counts.bin",
    "checkpoints/step=*/rank_*.safetensors",
    "checkpoints/step=*/trainer.json",
    "checkpoints/step=*/manifest.json",
    "checkpoints/best/rank_*.safetensors",
    "checkpoints/best/trainer.json",
    "checkpoints/best/manifest.json",
    "checkpoints/.partial-*/*",
    "csv/metrics.csv",
    "csv/hparams.yaml",
    "tensorboard/events.out.tfevents.*",
    "tensorboard/hparams.yaml",
    "wandb/**/*",
    "mlflow/**/*",
    "ray/**/*",
)
#: A file that a kill left half-written beside its place (recsys_lab/base/files.py).
UNFINISHED = tuple(f".{name}.[0-9]*" for name in RUN_WRITES if "/" not in name)
SWEEP_WRITES = ("multirun.yaml", "sweep.json", "search.json", "ablation.*", "ablation_statistics.csv", "slurm.sh", "logs/slurm_*.txt")


def written(folder: Path, patterns: Sequence[str] = (*RUN_WRITES, *UNFINISHED)) -> set[Path]:
    """The files in `folder` with the names of those that a run writes. Behind a link, only those that have such a name themselves."""
    trees = {pattern for pattern in patterns if "**" in pattern and (folder / pattern.split("/")[0]).is_symlink()}
    return {path for pattern in patterns if pattern not in trees for path in folder.glob(pattern)}


def _inner(folder: Path) -> set[Path]:
    """The folders in `folder` that go by the names of those that a run makes."""
    names = {str(parent) for pattern in RUN_WRITES for parent in Path(pattern).parents[:-1]}
    return {path for name in names for path in folder.glob(name)}


def remove(paths: Iterable[Path]) -> None:
    """Of `paths` the files, and the folders that are then empty."""
    for path in sorted(paths, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


class Ownership:
    """`with Ownership.of(folder) as mine`: `folder`, made if need be, is this process's alone while the context lasts.

    `earlier_files`: run files that were there before. `after_kill`: a process that had the folder was killed. An error before a run has
    `begun` leaves the folder as it was.
    """

    begun = False

    def __init__(self, folder: Path, new_folders: list[Path], lock: FileLock, after_kill: bool = False):
        self.folder, self.earlier_files, self.after_kill = folder, written(folder), after_kill
        self._inner, self._new_folders = _inner(folder), new_folders
        self._lock: FileLock | None = lock

    @staticmethod
    def of(folder: Path) -> Ownership:
        """Raises UserError where another process has the folder, and where it cannot be written."""
        from filelock import Timeout  # which neither help nor a refused line needs

        folder = Path(os.path.abspath(folder))
        new_folders: list[Path] = []
        try:
            _make(folder, new_folders)
            after_kill = (folder / LOCK_FILE).exists()  # who ends otherwise removes it, and who still lives is met below
            return Ownership(folder, new_folders, _lock(folder), after_kill)
        except Timeout:
            raise UserError(
                "another run has this folder",
                where=folder,
                given=_holder(folder) or "a process on another machine",
                remedy="wait until it ends, or choose another: hydra.run.dir=DIR (a sweep: hydra.sweep.dir=DIR)",
            ) from None
        except OSError as error:
            remove(new_folders)
            raise cannot_write(error, folder) from None
        except ValueError as error:  # a null byte
            raise UserError("no name of a folder", where=repr(str(folder)), given=str(error)) from None

    def __enter__(self) -> Ownership:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not self.begun:
            self.withdraw()
        if self._lock is not None:
            remove(written(self.folder, UNFINISHED))  # of ranks that were killed; none lives now
        self._release()

    def __getstate__(self) -> dict[str, Any]:
        """For a job on another machine (SLURM), which takes its own folder."""
        return self.__dict__ | {"_lock": None}

    def clear(self) -> None:
        """Removes what an earlier run wrote."""
        remove(written(self.folder) | _inner(self.folder))
        self.earlier_files, self._inner = written(self.folder), _inner(self.folder)

    def withdraw(self) -> None:
        """Leaves the folder as it was found, and lets go of it. What others put there stays."""
        remove((written(self.folder) | _inner(self.folder)) - self.earlier_files - self._inner)
        self._release()
        remove(self._new_folders)

    def _release(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                (self.folder / LOCK_FILE).unlink()
            self._lock.release()
            self._lock = None


def _make(folder: Path, new_folders: list[Path]) -> None:
    """Makes `folder` and its missing parents. Appends those to `new_folders`."""
    for path in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            if not path.is_dir():
                path.mkdir()
                new_folders.append(path)


def _lock(folder: Path) -> FileLock:
    """The lock, held. Timeout where another process holds it, OSError where its file cannot be written."""
    from filelock import FileLock

    lock = FileLock(folder / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    else:
        with contextlib.suppress(OSError):  # a full disk: only the holder's name is missing
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            (folder / LOCK_FILE).write_text(f"process {os.getpid()} on {socket.gethostname()}, since {since}\n")
    return lock


def _holder(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join((folder / LOCK_FILE).read_text(errors="replace")[:300].split())
    return ""
