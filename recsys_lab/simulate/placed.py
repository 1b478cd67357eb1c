"""Steps with their times: of one rank, and of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from recsys_lab.plan.steps import Step

#: What a host's link carries beside compute, and its disk.
COPY, DISK = "copy", "disk"
#: Streams of a rank, each in order. There are collectives of ids, of embeddings across hosts, of embeddings within one, and of dense
#: gradients. The other streams are what comes from the host, what goes there, and what its disk reads and writes.
STREAMS = ("compute", "input", "across", "within", "dense_sync", COPY, DISK)
LINKS = ("far", "near")
#: What a CPU rank's cores do for collectives that run beside each other: one message after another.
MESSAGES = "messages"
BACKGROUND = ("input", "dense_sync")


@dataclass(frozen=True)
class Event:
    """A step of an iteration from `start_ms` to `end_ms` on one rank. `elsewhere`: other ranks do it, and the times are theirs.

    `issued_ms`: when the rank's host had issued it.
    """

    step: Step
    start_ms: float
    end_ms: float
    stream: str = "compute"
    elsewhere: bool = False
    issued_ms: float = 0.0

    @property
    def ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class Placed:
    """A step on all ranks: `start`, `end` [R] in ms, or [1] where all are alike; `here` [R]: which ranks take part.

    `wire_ms` [R] or [1]: how long before its end a collective's link carries bytes. `link`: which one. `issued`: as `start`, when the host
    had issued it; None: before the iteration.
    """

    step: Step
    stream: str
    start: np.ndarray
    end: np.ndarray
    here: np.ndarray
    wire_ms: np.ndarray
    link: str = ""
    issued: np.ndarray | None = None


@dataclass(frozen=True)
class Launch:
    """What a rank's host does from `start_ms` to `end_ms`, in words: it issues so many kernels."""

    words: str
    start_ms: float
    end_ms: float
    kernels: int


@dataclass(frozen=True)
class Issued:
    """The same of every rank's host: `start`, `end` [R] or [1] in ms."""

    words: str
    start: np.ndarray
    end: np.ndarray
    kernels: int


@dataclass(frozen=True)
class Schedule:
    """All steps on all ranks. `host_ms` [R] or [1]: when the host has issued them all. `issued`: how, beside the device."""

    placed: tuple[Placed, ...]
    host_ms: np.ndarray = field(default_factory=lambda: np.zeros(1))
    issued: tuple[Issued, ...] = ()

    @property
    def ends(self) -> np.ndarray:
        """[R] ms: when each rank's iteration ends."""
        return np.maximum(np.max([np.where(p.here, p.end, 0.0) for p in self.placed], axis=0), self.host_ms)

    @property
    def slowest(self) -> int:
        """The rank whose iteration ends last, and of those the one that computes longest: nobody holds it up."""
        busy = np.sum([np.where(p.here, p.end - p.start, 0.0) for p in self.placed if p.stream == "compute"], axis=0)
        last = self.ends >= self.ends.max() * (1 - 1e-9)
        return int(np.argmax(np.where(last, busy + 1.0, 0.0)))

    @property
    def fastest(self) -> int:
        """The rank that computes least."""
        return int(np.argmin(np.sum([np.where(p.here, p.end - p.start, 0.0) for p in self.placed if p.stream == "compute"], axis=0)))

    def launches(self, rank: int) -> tuple[Launch, ...]:
        """What the host of `rank` is busy with. Its last ends at `host_ms`."""
        return tuple(Launch(one.words, float(one.start[rank]), float(one.end[rank]), one.kernels) for one in self.issued)

    def events(self, rank: int) -> list[Event]:
        """Every step as `rank` has it."""
        timeline = []
        for p in self.placed:
            at = rank if p.here[rank] else int(np.argmax(np.where(p.here, p.end, -1.0)))
            issued = 0.0 if p.issued is None else float(p.issued[at])
            timeline.append(Event(p.step, float(p.start[at]), float(p.end[at]), p.stream, not p.here[rank], issued))
        return timeline
