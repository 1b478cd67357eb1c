"""Writes one checkpoint at a time in a thread, beside training.

Ranks wait for one another there by a process group of its own: collectives of training stay in one thread each. The thread is a daemon: a
process that ends does not wait for it, and what it leaves has not the name of a checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
import torch.distributed as dist

from recsys_lab.executor.groups import group_of_threads

#: From here on a checkpoint's time is said.
LONG_S = 5.0
Barrier: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Saving:
    """How a checkpoint is saved. Lightning passes it on as `storage_options`.

    Attributes:
        background: it is copied, and written while training goes on, where memory suffices.
        base: a full checkpoint beside it. Of rows whose updates are tracked it has those that were updated since. None: it has all rows.
        is_base: from now on updates are tracked, for those that name it as their base.
        done: called on rank 0 once the checkpoint has its name, maybe by another thread.
    """

    background: bool = False
    base: Path | None = None
    is_base: bool = False
    done: Callable[[], None] = lambda: None


@dataclass
class Saved:
    """What a checkpoint cost this rank. `stall_s`: how long training waited for it. `write_s`: until it was on disk; 0: it is not yet."""

    folder: Path
    background: bool
    incremental: bool
    stall_s: float = 0.0
    write_s: float = 0.0
    bytes: int = 0

    def sentence(self) -> str:
        waited = f"training waited {self.stall_s:.1f} s" if self.background else "training waited for it"
        return f"checkpoint {self.folder.name}: {self.bytes / 1e9:.2f} GB a rank in {self.write_s:.0f} s, {waited}"


class CheckpointWriter:
    """`start` is collective the first time. `check` and `wait` raise what the thread raised."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._group: dist.ProcessGroup | None = None
        self._said = ""

    def start(self, write: Callable[[Barrier], None]) -> None:
        """Calls `write` with a barrier in a thread. None may be under way."""
        assert self._thread is None
        if self._group is None and dist.get_world_size() > 1:
            self._group = group_of_threads()
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Does not wait."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Until no checkpoint is under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def say(self, why: str) -> None:
        """Once, on rank 0: why training waits for checkpoints."""
        if why != self._said and dist.get_rank() == 0:
            print(f"training waits for checkpoints: {why}", flush=True)
        self._said = why

    def _run(self, write: Callable[[Barrier], None]) -> None:
        try:
            write(self._barrier)
        except BaseException as error:  # noqa: BLE001  # the other thread raises it
            self._error = error

    def _barrier(self) -> None:
        if self._group is not None:
            dist.barrier(self._group)


def say_if_long(saved: Saved) -> None:
    """One line on rank 0 of a checkpoint that took long."""
    if saved.write_s > LONG_S and dist.get_rank() == 0:
        print(saved.sentence(), flush=True)


def on_any_rank(device: torch.device, *facts: bool) -> list[bool]:
    """Which of `facts` hold on a rank at least; the same on all. Collective."""
    flags = torch.tensor(facts, dtype=torch.int32, device=device)
    if dist.get_world_size() > 1:
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return [bool(flag) for flag in flags.tolist()]
