"""Events of users in flat files, user after user and in the order of time, and which of them are samples, window after window.

times.bin int32 [N], seconds; items.bin int32 [N]; kinds.bin uint8 [N], bits; first.bin int64 [U + 1], where a user's events begin;
users.bin int64 [U]; artists.bin and albums.bin int32 [items], of each item; samples.bin int64 [S], positions of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recsys_lab.data.columns import mapped, stretches

#: Bits of a kind. The first three are what a model sees of an event; a listen is one of `HALF` and `SKIP`.
HALF, LIKE, SKIP, ORGANIC = 1, 2, 4, 8
SEEN = HALF | LIKE | SKIP
WINDOW_S = 86_400


@dataclass(frozen=True)
class UserEvents:
    """All events of some users, N of them, user after user, in the order of time."""

    users: np.ndarray  # int64 [U]
    counts: np.ndarray  # int64 [U]
    times: np.ndarray  # int32 [N]
    items: np.ndarray  # int32 [N]
    kinds: np.ndarray  # uint8 [N]


@dataclass(frozen=True)
class Store:
    """The files of a folder."""

    times: np.ndarray
    items: np.ndarray
    kinds: np.ndarray
    first: np.ndarray
    users: np.ndarray
    artists: np.ndarray
    albums: np.ndarray
    samples: np.ndarray
    window_ends: tuple[int, ...]  # samples up to the end of each window

    @staticmethod
    def load(folder: Path, meta: dict) -> Store:
        """What `write` wrote; `meta` is what it returned."""
        events, users, items, samples = (meta[key] for key in ("events", "users", "items", "samples"))
        shapes: dict[str, tuple[type, int]] = {
            "times": (np.int32, events),
            "items": (np.int32, events),
            "kinds": (np.uint8, events),
            "first": (np.int64, users + 1),
            "users": (np.int64, users),
            "artists": (np.int32, items),
            "albums": (np.int32, items),
            "samples": (np.int64, samples),
        }
        arrays = {name: mapped(folder / f"{name}.bin", kind, (size,)) for name, (kind, size) in shapes.items()}
        return Store(**arrays, window_ends=tuple(meta["window_ends"]))

    def window_of(self, samples: np.ndarray) -> np.ndarray:
        """int64 [n]: of samples by number."""
        return np.searchsorted(self.window_ends, samples, side="right")


def write(folder: Path, blocks: Iterable[UserEvents], artists: np.ndarray, albums: np.ndarray, min_history: int) -> dict:
    """Appends `blocks`, one at a time in memory. A sample is a listen of a user with `min_history` events or more before it.

    Returns what `Store.load` must know, as plain data.
    """
    artists.astype(np.int32).tofile(folder / "artists.bin")
    albums.astype(np.int32).tofile(folder / "albums.bin")
    events, users, ends = 0, 0, [0]
    windows: dict[int, int] = {}
    names = ("times", "items", "kinds", "users")
    files = {name: (folder / f"{name}.bin").open("wb") for name in names}
    try:
        for block in blocks:
            for name, kind in zip(names, (np.int32, np.int32, np.uint8, np.int64)):
                files[name].write(np.ascontiguousarray(getattr(block, name), kind).data)
            _add_samples(folder, block, events, min_history, windows)
            ends.extend((events + np.cumsum(block.counts)).tolist())
            events, users = events + len(block.times), users + len(block.users)
    finally:
        for file in files.values():
            file.close()
    np.array(ends, np.int64).tofile(folder / "first.bin")
    counts = [windows.get(window, 0) for window in range(max(windows, default=-1) + 1)]
    with (folder / "samples.bin").open("wb") as together:
        for window in sorted(windows):
            part = _of_window(folder, window)
            together.write(part.read_bytes())
            part.unlink()
    ends_of_windows = np.cumsum(counts).tolist()
    return {"events": events, "users": users, "items": len(artists), "samples": sum(counts), "window_ends": ends_of_windows}


def _of_window(folder: Path, window: int) -> Path:
    return folder / f"samples_{window}.bin"


def _add_samples(folder: Path, block: UserEvents, before: int, min_history: int, windows: dict[int, int]) -> None:
    """Appends the samples of a block to the file of their window."""
    number = stretches(np.zeros_like(block.counts), block.counts)
    samples = np.flatnonzero((number >= min_history) & (block.kinds & (HALF | SKIP) > 0))
    of_window = block.times[samples].astype(np.int64) // WINDOW_S
    order = np.argsort(of_window, kind="stable")
    samples, of_window = samples[order] + before, of_window[order]
    for window, start, count in zip(*np.unique(of_window, return_index=True, return_counts=True)):
        with _of_window(folder, int(window)).open("ab") as file:
            file.write(samples[start : start + count].astype(np.int64).data)
        windows[int(window)] = windows.get(int(window), 0) + int(count)
