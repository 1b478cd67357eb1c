"""What a row says of a history: the last items of it, in the columns of `Rows`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_lab.data.columns import stretches
from recsys_lab.data.interactions.histories import Histories
from recsys_lab.data.interactions.side_columns import EVENT, ITEM, USER, SideColumn
from recsys_lab.data.protocol import RowEvents, Rows

#: One feature's part of `Rows`: lengths [B] and ids [lengths.sum()].
Column = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Inputs:
    """What a row says of a history: at most its `max_length` last items. `categories` and `times` come with them if the model has them.

    `event_times`: when each item came, for models that attend by it.
    """

    histories: Histories
    max_length: int
    times: bool
    event_times: bool = False

    def cut(self, ends: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where in the flat arrays, int64 [sum], the last of `lengths` [B] interactions before `ends` [B] are. Also how many, int64 [B]."""
        kept = np.minimum(lengths, self.max_length)
        return stretches(ends - kept, kept), kept

    def side(self, where: np.ndarray, lengths: np.ndarray) -> tuple[list[Column], list[Column]]:
        """The columns of the category and of the time feature, each of none or one."""
        h = self.histories
        category = [] if h.categories is None else [(lengths, h.categories[h.ids[where]])]
        assert not self.times or h.gaps is not None
        return category, [(lengths, h.gaps[where])] if self.times and h.gaps is not None else []

    def side_columns(self, users: np.ndarray, where: np.ndarray, lengths: np.ndarray) -> list[Column]:
        """The side columns, in the order of `histories.sides`: of each interaction, or of the users [B]."""
        columns: list[Column] = []
        for side in self.histories.sides:
            counts, ids = side.read(self._cells(side, users, where))
            if side.of != USER:
                counts = np.diff(np.concatenate([[0], np.cumsum(counts)])[np.concatenate([[0], np.cumsum(lengths)])])
            columns.append((counts, ids))
        return columns

    def _cells(self, side: SideColumn, users: np.ndarray, where: np.ndarray) -> np.ndarray:
        return {EVENT: where, ITEM: self.histories.ids[where], USER: users}[side.of]

    def events(self, where: np.ndarray, lengths: np.ndarray) -> RowEvents | None:
        """When each item came, and as the time of the question the last one's; and how many ids a side column of lists has of each.

        None where neither was asked for.
        """
        lists = [side for side in self.histories.sides if side.is_list and side.of != USER]
        counts = {side.feature: side.read(self._cells(side, where, where))[0] for side in lists}
        instants = self.histories.instants if self.event_times else None
        if instants is None and not counts:
            return None
        times, last = np.zeros(len(where), np.int64) if instants is None else instants[where], np.cumsum(lengths) - 1
        asked = np.where(lengths > 0, times[np.maximum(last, 0)] if len(times) else 0, 0)
        return RowEvents(times, np.zeros(len(times), np.uint8), asked, counts, timed=instants is not None)


def click_rows(inputs: Inputs, ends: np.ndarray, lengths: np.ndarray, candidates: np.ndarray, labels: np.ndarray) -> Rows:
    """Rows with the last of `lengths` [B] interactions before `ends` [B] and one candidate [B] each."""
    h = inputs.histories
    where, kept = inputs.cut(ends, lengths)
    one = np.ones(len(ends), np.int64)
    category, time = inputs.side(where, kept)
    of_candidate = [] if h.categories is None else [(one, h.categories[candidates])]
    return as_rows(labels, [(kept, h.ids[where]), (one, candidates), *category, *of_candidate, *time])


def as_rows(labels: np.ndarray, columns: list[Column], events: RowEvents | None = None) -> Rows:
    lengths = np.stack([lengths for lengths, _ in columns]).astype(np.int32)
    return Rows(labels.astype(np.float32), None, lengths, np.concatenate([ids for _, ids in columns]).astype(np.int64), events)
