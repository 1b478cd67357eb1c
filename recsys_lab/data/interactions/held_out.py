"""Users' held-out items, to be found among others.

A user has the item, a history before it, and random items that are not in the history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_lab.data import hashing
from recsys_lab.data.columns import stretches
from recsys_lab.data.interactions.inputs import Inputs, click_rows
from recsys_lab.data.protocol import Rows

#: Part of the key of the random items: with another word, others are drawn.
DRAWS = "ranked"


@dataclass(frozen=True)
class HeldOut:
    """Row r is user `users[r]`, whose item `back` from the end is held out: 1 for test, 2 for validation. Items are 1 to `items`."""

    inputs: Inputs
    users: np.ndarray
    back: int
    seed: int

    @property
    def rows(self) -> int:
        return len(self.users)

    @property
    def items(self) -> int:
        return self.inputs.histories.items

    @property
    def item_rows(self) -> int:
        return self.items + 1

    def before(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the history before the held-out item ends in the flat arrays, and its length, both int64 [n]."""
        users = self.users[rows]
        ends = self.inputs.histories.first[users + 1] - self.back
        return ends, ends - self.inputs.histories.first[users]

    def target(self, rows: np.ndarray) -> np.ndarray:
        """int64 [n]: the held-out item."""
        return self.inputs.histories.ids[self.before(rows)[0]].astype(np.int64)

    def seen(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The items before the held-out one: how many, int64 [n], and which, int64 [sum], user after user."""
        ends, lengths = self.before(rows)
        return lengths, self.inputs.histories.ids[stretches(ends - lengths, lengths)].astype(np.int64)

    def sampled(self, rows: np.ndarray, wanted: int) -> np.ndarray:
        """int64 [n, wanted]: distinct random items that the user never had, before or after; 0 where there are no more."""
        users = self.users[rows]
        numbers = distinct_below(self.inputs.histories.unseen.count(users), wanted, hashing.key(DRAWS, self.seed, self.back), users)
        drawn = self.inputs.histories.unseen.item(np.repeat(users, wanted), np.maximum(numbers, 0).ravel()).reshape(numbers.shape)
        return np.where(numbers < 0, 0, drawn)

    def candidates(self, sampled: int) -> Candidates:
        """Rows for a click model to score: for each user the held-out item and `sampled` others, or with 0 every item."""
        return Candidates(self, sampled)


@dataclass(frozen=True)
class Candidates:
    """A split with `per_user` rows a user of `held_out`, one for each candidate.

    The held-out item comes first, then those drawn (0 where there are no more). With `sampled` 0 every item is a candidate, from 1 on. Its
    labels mean nothing.
    """

    held_out: HeldOut
    sampled: int

    @property
    def per_user(self) -> int:
        return self.sampled + 1 if self.sampled else self.held_out.items

    @property
    def rows(self) -> int:
        return self.held_out.rows * self.per_user

    def read(self, rows: np.ndarray) -> Rows:
        which, position = rows // self.per_user, rows % self.per_user
        candidates = self._drawn(which, position) if self.sampled else position + 1
        return click_rows(self.held_out.inputs, *self.held_out.before(which), candidates, np.zeros(len(rows)))

    def _drawn(self, which: np.ndarray, position: np.ndarray) -> np.ndarray:
        distinct, back = np.unique(which, return_inverse=True)
        choices = np.column_stack([self.held_out.target(distinct), self.held_out.sampled(distinct, self.sampled)])
        return choices[back, position]


def distinct_below(limits: np.ndarray, wanted: int, stream: np.uint64, counter: np.ndarray) -> np.ndarray:
    """int64 [n, wanted]: distinct random numbers in [0, limits[i]), -1 where there are no more. A row depends on its counter alone.

    Every set is as likely as any other: a number that was drawn before is drawn again.
    """
    columns = np.arange(wanted)
    drawn = np.full((len(limits), wanted), -1, np.int64)
    for i in np.flatnonzero(limits <= 2 * wanted):  # few to choose from: shuffle them all
        order = np.argsort(hashing.bits(stream, counter[i] * 2 * wanted + np.arange(limits[i])), kind="stable")[:wanted]
        drawn[i, : len(order)] = order
    many = np.flatnonzero(limits > 2 * wanted)
    values = np.empty((len(many), wanted), np.int64)
    again = np.ones_like(values, bool)
    attempt = 0
    while again.any():
        row, column = np.nonzero(again)
        draws = hashing.bits(hashing.key(int(stream), attempt), counter[many[row]] * wanted + column)
        values[row, column] = (hashing.uniform(draws) * limits[many[row]]).astype(np.int64)
        order = np.argsort(values, axis=1, kind="stable")
        in_order = np.take_along_axis(values, order, axis=1)
        again[:] = False
        repeated = np.concatenate([np.zeros((len(many), 1), bool), in_order[:, 1:] == in_order[:, :-1]], axis=1)
        np.put_along_axis(again, order, repeated, axis=1)
        attempt += 1
    drawn[many] = values
    return drawn[:, columns]
