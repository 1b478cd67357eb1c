"""Rows of histories for a model: which ids each row of a split has. Every row is a function of its number alone.

A train split is `passes` passes over the same users, each with negatives of its own. The row number is pass * rows of a pass + row of the
pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recsys_lab.data import hashing
from recsys_lab.data.columns import stretches
from recsys_lab.data.interactions.held_out import HeldOut
from recsys_lab.data.interactions.inputs import Inputs, as_rows, click_rows
from recsys_lab.data.protocol import Rows


@dataclass(frozen=True)
class NextItems:
    """A row a user: `item` is its train part but for the last item. `positive` is the item after each.

    `negative` are items that the user has not had: `negatives` for each place, place after place, or with `by_place` False for the row.
    """

    inputs: Inputs
    passes: int
    seed: int
    negatives: int = 1
    by_place: bool = True

    @cached_property
    def users(self) -> np.ndarray:
        """int64: the users of a pass: two train items or more, and an item left that is none of them."""
        h = self.inputs.histories
        return np.flatnonzero((h.train_lengths > 1) & (h.unseen_in_train.count(np.arange(h.users)) > 0))

    @property
    def rows(self) -> int:
        return self.passes * len(self.users)

    @property
    def mean_length(self) -> float:
        """Of `item` and `positive` alike."""
        return float(np.minimum(self.inputs.histories.train_lengths[self.users] - 1, self.inputs.max_length).mean())

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        shorter = self.inputs.histories.train_lengths[self.users[rows % len(self.users)]] - 1
        return np.minimum(shorter, self.inputs.max_length).astype(np.int64)

    def read(self, rows: np.ndarray) -> Rows:
        h = self.inputs.histories
        users = self.users[rows % len(self.users)]
        shorter = h.train_lengths[users] - 1
        where, lengths = self.inputs.cut(h.first[users] + shorter, shorter)
        drawn = self.negatives * (lengths if self.by_place else np.ones_like(lengths))
        most = self.negatives * (self.inputs.max_length if self.by_place else 1)
        counter = np.repeat(rows, drawn) * most + stretches(np.zeros_like(drawn), drawn)
        draws = hashing.bits(hashing.key("negative", self.seed), counter)
        category, time = self.inputs.side(where, lengths)
        columns = [
            (lengths, h.ids[where]),
            (lengths, h.ids[where + 1]),
            (drawn, h.unseen_in_train.draw(np.repeat(users, drawn), draws)),
            *category,
            *time,
            *self.inputs.side_columns(users, where, lengths),
        ]
        return as_rows(np.ones(len(rows)), columns, self.inputs.events(where, lengths))


@dataclass(frozen=True)
class HistoriesBefore:
    """A row a user of `held_out`: `item` is all that came before the held-out one. `positive` and `negative` are empty."""

    inputs: Inputs
    held_out: HeldOut

    @property
    def rows(self) -> int:
        return self.held_out.rows

    def read(self, rows: np.ndarray) -> Rows:
        where, lengths = self.inputs.cut(*self.held_out.before(rows))
        events = self.inputs.events(where, lengths)
        none = (np.zeros(len(rows), np.int64), np.empty(0, np.int64))
        category, time = self.inputs.side(where, lengths)
        sides = self.inputs.side_columns(self.held_out.users[rows], where, lengths)
        return as_rows(np.ones(len(rows)), [(lengths, self.inputs.histories.ids[where]), none, none, *category, *time, *sides], events)


@dataclass(frozen=True)
class Clicks:
    """Two rows for each interaction of a train part except a user's first.

    Both have the items before it as `item`. The `candidate` is the interaction's item (label 1), or one that the user has not had (label
    0).
    """

    inputs: Inputs
    passes: int
    seed: int

    @cached_property
    def _first_pair(self) -> np.ndarray:
        """int64 [U + 1]: where the interactions of each user begin among those of a pass."""
        h = self.inputs.histories
        pairs = np.where(h.unseen_in_train.count(np.arange(h.users)) > 0, np.maximum(h.train_lengths - 1, 0), 0)
        return np.concatenate([[0], np.cumsum(pairs)])

    @property
    def rows(self) -> int:
        return 2 * self.passes * int(self._first_pair[-1])

    @property
    def mean_length(self) -> float:
        """Of `item`."""
        pairs = np.diff(self._first_pair)
        return float(np.minimum(stretches(np.ones_like(pairs), pairs), self.inputs.max_length).mean())

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        return np.maximum(np.minimum(self._of_pairs(rows)[1], self.inputs.max_length), 1).astype(np.int64)

    def _of_pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[B] of each: the user, and how many interactions come before."""
        pairs = rows // 2 % int(self._first_pair[-1])
        users = np.searchsorted(self._first_pair, pairs, side="right") - 1
        return users, pairs - self._first_pair[users] + 1

    def read(self, rows: np.ndarray) -> Rows:
        h, is_negative = self.inputs.histories, rows % 2 == 1
        users, before = self._of_pairs(rows)
        candidates = h.ids[h.first[users] + before].astype(np.int64)
        draws = hashing.bits(hashing.key("negative", self.seed), rows[is_negative])
        candidates[is_negative] = h.unseen_in_train.draw(users[is_negative], draws)
        return click_rows(self.inputs, h.first[users] + before, before, candidates, ~is_negative)


@dataclass(frozen=True)
class HeldOutClicks:
    """Two rows a user of `held_out`: its item (label 1), then one that the user never had (label 0)."""

    inputs: Inputs
    held_out: HeldOut

    @property
    def rows(self) -> int:
        return 2 * self.held_out.rows

    def read(self, rows: np.ndarray) -> Rows:
        which, is_negative = rows // 2, rows % 2 == 1
        candidates = np.where(is_negative, self.held_out.sampled(which, 1)[:, 0], self.held_out.target(which))
        return click_rows(self.inputs, *self.held_out.before(which), candidates, ~is_negative)
