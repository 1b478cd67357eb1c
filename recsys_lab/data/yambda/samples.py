"""Samples of stored events: a listen as the candidate, and the user's events before it as the history.

Of the last `scan` events before the candidate a history has the last of each pool, half-listened, liked and skipped, a third of
`max_history` each, in the order of time. A pool with fewer gives its places to no other. Or it has the last `max_history` of any pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recsys_lab.data.protocol import RowEvents, Rows, Values
from recsys_lab.data.yambda.features import CROSSES, READERS, crossed
from recsys_lab.data.yambda.store import HALF, LIKE, ORGANIC, SEEN, SKIP, Store
from recsys_lab.errors import UserError

HISTORIES = ("interleaved", "last_n")


@dataclass(frozen=True)
class HistoryRule:
    """How a history is cut: a choice of `HISTORIES`, its longest, and how many events before the candidate are looked at."""

    kind: str
    max_history: int
    scan: int

    def cut(self, kinds: np.ndarray) -> np.ndarray:
        """int64: which of a user's events before the candidate, by their `kinds`, make up the history."""
        if self.kind == "last_n":
            return np.flatnonzero(kinds & SEEN)[-self.max_history :]
        most = self.max_history // 3
        if not most:
            return np.empty(0, np.int64)
        return np.sort(np.concatenate([np.flatnonzero(kinds & bit)[-most:] for bit in (HALF, LIKE, SKIP)]))

    def lengths(self, kinds: np.ndarray, ends: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """int64 [n]: how many `cut` gives of the events from each of `starts` to each of `ends`, all of one user."""
        begin = int(starts.min())
        own = kinds[begin : int(ends.max())]

        def count(bit: int, most: int) -> np.ndarray:
            before = np.concatenate([[0], np.cumsum(own & bit > 0)])
            return np.minimum(before[ends - begin] - before[starts - begin], most)

        if self.kind == "last_n":
            return count(SEEN, self.max_history)
        return np.sum([count(bit, self.max_history // 3) for bit in (HALF, LIKE, SKIP)], axis=0)


@dataclass(frozen=True)
class SampleSplit:
    """Samples [begin, begin + rows) of the store: window after window, in a window by user, then by time."""

    store: Store
    rule: HistoryRule
    table_rows: Mapping[str, int]
    begin: int
    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        store = self.store
        at = store.samples[rows + self.begin]
        user = np.searchsorted(store.first, at, side="right") - 1
        history = [self._history(int(event), int(store.first[own])) for event, own in zip(at, user)]
        lengths = np.array([len(own) for own in history], np.int64)
        events = np.concatenate([np.empty(0, np.int64), *history])
        times, last = store.times[events].astype(np.int64), np.cumsum(lengths) - 1
        asked = np.where(lengths > 0, times[last] if len(times) else 0, store.times[at])
        items, candidates = store.items[events].astype(np.int64), store.items[at].astype(np.int64)
        of_history = {"item_id": items, "artist_id": store.artists[items], "album_id": store.albums[items]}
        of_one = self._of_candidate(candidates, store.users[user], store.times[at].astype(np.int64), store.kinds[at])
        one, columns = np.ones(len(rows), np.int64), []
        for name in (name for names in READERS.values() for name in names):
            columns.append((lengths, of_history[name]) if name in of_history else (one, of_one[name]))
        ids = np.concatenate([own for _, own in columns]).astype(np.int64)
        labels = (store.kinds[at] & HALF).astype(np.float32)
        actions = store.kinds[events] & np.uint8(SEEN)
        return Rows(labels, None, np.stack([own for own, _ in columns]).astype(np.int32), ids, RowEvents(times, actions, asked))

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """int64 [B]: of histories, one user's at once."""
        store = self.store
        at = store.samples[rows + self.begin]
        users = np.searchsorted(store.first, at, side="right") - 1
        order = np.argsort(users, kind="stable")
        starts = np.flatnonzero(np.diff(users[order], prepend=-1))
        lengths = np.empty(len(rows), np.int64)
        for own in np.split(order, starts[1:]):
            if len(own):
                first = int(store.first[users[own[0]]])
                lengths[own] = self.rule.lengths(store.kinds, at[own], np.maximum(at[own] - self.rule.scan, first))
        return lengths

    def _history(self, event: int, first: int) -> np.ndarray:
        """int64 [n]: positions of the events before `event` of the user whose events begin at `first`."""
        start = max(first, event - self.rule.scan)
        return start + self.rule.cut(self.store.kinds[start:event])

    def _of_candidate(self, items: np.ndarray, users: np.ndarray, times: np.ndarray, kinds: np.ndarray) -> dict[str, np.ndarray]:
        """[B] by feature: ids of what has one a sample."""
        artists, albums = self.store.artists[items].astype(np.int64), self.store.albums[items].astype(np.int64)
        organic = (kinds & ORGANIC > 0).astype(np.int64)
        keys = {"uid": users, "item": items, "artist": artists, "album": albums, "hour": times // 3600 % 24, "is_organic": organic}
        crosses = {table: crossed(keys, table, self.table_rows[table]) for table in CROSSES}
        own = {"item_candidate_id": items, "item_candidate_artist_id": artists, "item_candidate_album_id": albums}
        return own | {"uid": users} | crosses


@dataclass(frozen=True)
class Windows:
    """The window of each sample, by which quality can be told apart: `evaluate.by=window`."""

    splits: Mapping[str, SampleSplit]

    @property
    def names(self) -> Sequence[str]:
        return ("window",)

    def read(self, column: str, split: str) -> Values:
        if column != "window":
            raise UserError("no such column", where="evaluate", given=column, allowed="window")
        own = self.splits[split]
        windows = own.store.window_of(np.arange(own.begin, own.begin + own.rows))
        return Values(windows - windows.min(), [str(window) for window in range(windows.min(), windows.max() + 1)])
