"""Histories: every user's interactions in the order of time, as flat arrays that are memory-mapped.

Rows of the item table are 1 to `items`. Row 0 stands for no item and is never looked up, as sequences are jagged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recsys_lab.data import hashing
from recsys_lab.data.columns import mapped
from recsys_lab.data.interactions.side_columns import SideColumn

#: With fewer, nothing is left for training once two are held out. Such a user is in the train split alone.
FEWEST_TO_HOLD_OUT = 3
#: Rows of the time table: 0 before a user's first interaction, 1 for no time between, else 2 + floor(log2(gap)). The last row takes all
#: longer gaps.
TIME_ROWS = 48
MOST_INSTANT = 2.0**53


@dataclass(frozen=True)
class Unseen:
    """The items that a user has not had, numbered 0, 1, ... in rising order, without a list of them.

    `keys` [sum of distinct items]: for the i-th smallest item s of user u, u (items + 1) + (s - 1 - i). The bracket counts the unseen items
    below s. `first` int64 [U + 1]: where a user's keys begin.
    """

    items: int
    keys: np.ndarray
    first: np.ndarray

    @staticmethod
    def of(users: np.ndarray, ids: np.ndarray, n_users: int, items: int) -> Unseen:
        """From the interactions (user, item) [N], in any order."""
        both = np.unique(users.astype(np.int64) * (items + 1) + ids - 1)
        first = np.searchsorted(both, np.arange(n_users + 1, dtype=np.int64) * (items + 1))
        return Unseen(items, both - (np.arange(len(both)) - np.repeat(first[:-1], np.diff(first))), first)

    def count(self, users: np.ndarray) -> np.ndarray:
        """int64 [n]: how many items each user has not had."""
        return self.items - (self.first[users + 1] - self.first[users])

    def item(self, users: np.ndarray, number: np.ndarray) -> np.ndarray:
        """int64 [n]: unseen item `number` of each user, 0 <= number < count."""
        below = np.searchsorted(self.keys, users * (self.items + 1) + number, side="right") - self.first[users]
        return number + below + 1

    def draw(self, users: np.ndarray, random_bits: np.ndarray) -> np.ndarray:
        """int64 [n]: one unseen item of each user, every one as likely as the others."""
        return self.item(users, (hashing.uniform(random_bits) * self.count(users)).astype(np.int64))


@dataclass(frozen=True)
class Histories:
    """U users with N interactions. User u has `ids[first[u]:first[u + 1]]`, its first `train_length[u]` for training."""

    items: int
    ids: np.ndarray  # int32 [N], 1 to items
    first: np.ndarray  # int64 [U + 1]
    gaps: np.ndarray | None  # uint8 [N], rows of the time table; None without times
    categories: np.ndarray | None  # int32 [items + 1], an item's category, 0 for none; None where not asked for
    unseen: Unseen  # by all a user's interactions
    unseen_in_train: Unseen  # by its train part
    instants: np.ndarray | None = None  # int64 [N], in what gaps count; None without times
    sides: tuple[SideColumn, ...] = ()

    @property
    def users(self) -> int:
        return len(self.first) - 1

    @property
    def lengths(self) -> np.ndarray:
        """int64 [U]."""
        return np.diff(self.first)

    @property
    def train_lengths(self) -> np.ndarray:
        """int64 [U]: all but the last two interactions, or all of a user that has too few."""
        return train_lengths(self.lengths)

    @property
    def in_train(self) -> np.ndarray:
        """bool [N]: whether an interaction is of a user's train part."""
        return np.arange(len(self.ids)) - np.repeat(self.first[:-1], self.lengths) < np.repeat(self.train_lengths, self.lengths)

    def held_out(self) -> np.ndarray:
        """int64: the users with a validation and a test item."""
        return np.flatnonzero(self.lengths >= FEWEST_TO_HOLD_OUT)

    @staticmethod
    def load(folder: Path, meta: dict) -> Histories:
        """What `save` wrote; `meta` is what it returned."""
        n, users, items = meta["interactions"], meta["users"], meta["items"]

        def unseen(name: str, size: int) -> Unseen:
            return Unseen(
                items, mapped(folder / f"{name}.bin", np.int64, (size,)), mapped(folder / f"{name}_first.bin", np.int64, (users + 1,))
            )

        return Histories(
            items,
            mapped(folder / "ids.bin", np.int32, (n,)),
            mapped(folder / "first.bin", np.int64, (users + 1,)),
            mapped(folder / "gaps.bin", np.uint8, (n,)) if meta["times"] else None,
            mapped(folder / "categories.bin", np.int32, (items + 1,)) if meta["categories"] else None,
            unseen("unseen", meta["unseen"]),
            unseen("unseen_train", meta["unseen_train"]),
            mapped(folder / "instants.bin", np.int64, (n,)) if meta["times"] else None,
            tuple(SideColumn.load(folder, number, one) for number, one in enumerate(meta.get("sides", []))),
        )

    def save(self, folder: Path) -> dict:
        """Writes the arrays. Returns what `load` must know, as plain data."""
        arrays = {
            "ids": self.ids.astype(np.int32),
            "first": self.first.astype(np.int64),
            "gaps": self.gaps,
            "instants": self.instants,
            "categories": self.categories,
            "unseen": self.unseen.keys,
            "unseen_first": self.unseen.first,
            "unseen_train": self.unseen_in_train.keys,
            "unseen_train_first": self.unseen_in_train.first,
        }
        for name, array in arrays.items():
            if array is not None:
                (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(array).data)
        return {
            "interactions": len(self.ids),
            "users": self.users,
            "items": self.items,
            "times": self.gaps is not None,
            "categories": 0 if self.categories is None else int(self.categories.max()),
            "unseen": len(self.unseen.keys),
            "unseen_train": len(self.unseen_in_train.keys),
            "sides": [side.save(folder, number) for number, side in enumerate(self.sides)],
        }


def histories_of(
    users: np.ndarray,
    ids: np.ndarray,
    times: np.ndarray | None,
    n_users: int,
    items: int,
    categories: np.ndarray | None,
    unit: int = 1,
    ties: np.ndarray | None = None,
) -> Histories:
    """From interactions [N] in file order. They are sorted by user, then by time where there are times. Ties keep the file's order.

    `unit`: of `times`, what gaps are counted in. `ties` [N]: sort those of equal time, instead of the file's order.
    """
    order = order_of(users, times, ties)
    users, ids = users[order], ids[order]
    first = np.searchsorted(users, np.arange(n_users + 1))
    position = np.arange(len(ids)) - first[users]
    in_train = position < train_lengths(np.diff(first))[users]
    return Histories(
        items,
        ids,
        first,
        None if times is None else time_rows(times[order], position == 0, unit),
        categories,
        Unseen.of(users, ids, n_users, items),
        Unseen.of(users[in_train], ids[in_train], n_users, items),
        None if times is None else np.clip(np.floor(times[order] / unit), -MOST_INSTANT, MOST_INSTANT).astype(np.int64),
    )


def order_of(users: np.ndarray, times: np.ndarray | None, ties: np.ndarray | None) -> np.ndarray:
    """int64 [N]: which interaction of the file stands at each place of the histories."""
    return np.lexsort((*(key for key in (ties, times) if key is not None), users))


def train_lengths(lengths: np.ndarray) -> np.ndarray:
    """int64 [U]: how many interactions of users with `lengths` [U] are for training."""
    return np.where(lengths >= FEWEST_TO_HOLD_OUT, lengths - 2, lengths)


def time_rows(times: np.ndarray, is_first: np.ndarray, unit: int = 1) -> np.ndarray:
    """uint8 [N]: the time table's row of each interaction, by the gap to the one before it, in `unit` of `times`."""
    gaps = np.diff(times, prepend=times[:1]) / unit
    rows = np.where(gaps < 1, 1, 2 + np.floor(np.log2(np.maximum(gaps, 1))))
    return np.where(is_first, 0, np.minimum(rows, TIME_ROWS - 1)).astype(np.uint8)
