"""What a data set is, without torch. Shapes: B rows, F features, K dense values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from recsys_lab.tables import AccessStatistics, RankLaw
from recsys_lab.tables.counted import CountedLaw
from recsys_lab.tables.lengths import Lengths

#: How names of features begin that say more of each item of a history, and of its user.
SIDE, CONTEXT = "side_", "user_"


@dataclass(frozen=True)
class Feature:
    """One categorical feature and the rows its table needs.

    Attributes:
        name: of the feature.
        rows: of its table.
        mean_length: look-ups a sample; 1 for one-hot.
        pooling: sum, mean, or none for a sequence.
        table: features that name one share it; None: a table of its own.
        law: how generated ids fall over the rows; None: as the data set's own key says.
    """

    name: str
    rows: int
    mean_length: float = 1.0
    pooling: str = "sum"
    table: str | None = None
    law: RankLaw | CountedLaw | None = None

    @property
    def table_name(self) -> str:
        return self.table or self.name


@dataclass(frozen=True)
class RowEvents:
    """What histories say beside their ids, N events of B rows, row after row. A history's features are as long as its events.

    `counts`: features that have several ids an event are longer: by name how many of their ids each event has, one at least.
    `timed`: whether times are known; else they are 0.
    """

    times: np.ndarray  # [N] int64: seconds, rising within a row
    actions: np.ndarray  # [N] uint8: bits, of what the user did
    asked: np.ndarray  # [B] int64: the time of the question, in seconds
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)  # [N] int64 each
    timed: bool = True


@dataclass(frozen=True)
class Rows:
    """Some rows of a split. `ids` in KeyedJaggedTensor order: feature by feature, row by row within a feature."""

    labels: np.ndarray  # [B] float32, 0 or 1
    dense: np.ndarray | None  # [B, K] float32, or None where the data have no dense values
    lengths: np.ndarray  # [F, B] int32: how many ids of feature f row b has
    ids: np.ndarray  # [lengths.sum()] int64
    events: RowEvents | None = None  # of histories with times and actions

    def ids_by_feature(self) -> list[np.ndarray]:
        """int64, of each feature: its ids, row by row."""
        return np.split(self.ids, np.cumsum(self.lengths.sum(axis=1))[:-1])


class Split(Protocol):
    """One of train, validation, test. Any rows can be read in any order: no rank ever reads another rank's rows."""

    @property
    def rows(self) -> int: ...

    def read(self, rows: np.ndarray) -> Rows:
        """Reads rows.

        Args:
            rows: int64 [B], each in [0, self.rows).

        Returns:
            The rows with these numbers, in this order.
        """
        ...


@runtime_checkable
class SizedSplit(Split, Protocol):
    """A split that knows how long its histories are without reading them."""

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """How long rows are.

        Args:
            rows: int64 [B], each in [0, self.rows).

        Returns:
            int64 [B]: the ids of each row's longest feature.
        """
        ...


class HeldOutItems(Protocol):
    """Users of a split with one held-out item each. User r of [0, rows) is row r of the split, where the split has a row for each user."""

    @property
    def rows(self) -> int: ...
    @property
    def items(self) -> int: ...  # numbered 1 to items
    @property
    def item_rows(self) -> int: ...  # of table item: item i is its row i, modulo that
    def target(self, rows: np.ndarray) -> np.ndarray: ...  # int64 [n]: the held-out item
    def seen(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...  # what came before: lengths [n] and items [sum]
    def sampled(self, rows: np.ndarray, wanted: int) -> np.ndarray: ...  # int64 [n, wanted]: items never had, 0 where no more
    def candidates(self, sampled: int) -> Split: ...  # rows to score: the held-out item and `sampled` others a user; 0: every item


@dataclass(frozen=True)
class Values:
    """What a column says of each row of a split: row r has `names[codes[r]]`. `codes` int64 [rows], the same for rows with one value."""

    codes: np.ndarray
    names: Sequence[str]


class Columns(Protocol):
    """Columns of a data set's own files, whether or not a model reads them."""

    @property
    def names(self) -> Sequence[str]: ...
    def read(self, column: str, split: str) -> Values: ...  # UserError where it cannot be read


@dataclass(frozen=True)
class HistoryCounts:
    """Of a log as histories. `max_length`: the most items of a history that are read."""

    users: int
    items: int
    interactions: int
    max_length: int


#: (table, n) -> int64 [n]: its n most frequent rows in the train split, in falling frequency; ties by lower id.
Hottest = Callable[[str, int], np.ndarray]


class DataSet(Protocol):
    """Splits with the same features.

    `best_auc` is known only where the truth was planted: the AUC of the true click probabilities. On validation and test no model is better
    but by chance. On train one may be, as it has seen the labels.
    """

    @property
    def features(self) -> tuple[Feature, ...]: ...
    @property
    def dense_features(self) -> int: ...
    @property
    def splits(self) -> Mapping[str, Split]: ...  # train, validation, and test where there is one
    @property
    def access(self) -> AccessStatistics: ...  # of the train split, one entry a table
    @property
    def history(
        self,
    ) -> Lengths | None: ...  # how long the samples of the train split are; None: they have no sequences, or it is not known
    @property
    def notes(self) -> tuple[str, ...]: ...  # what the user should know: lines skipped, best reachable AUC, random labels
    @property
    def fingerprint(self) -> str: ...  # of the content and of how it was read
    @property
    def best_auc(self) -> Mapping[str, float]: ...  # by split; empty where unknown
    @property
    def learnable(self) -> bool: ...  # False for random data: quality means nothing
    @property
    def chooses_settings(self) -> bool: ...  # whether settings that the config leaves open are chosen by the rows
    @property
    def labelled(self) -> bool: ...  # False where labels are not known, and stand as 0
    @property
    def keep(self) -> Callable[[Path], None] | None: ...  # writes into a folder what reads later rows as these; None: nothing is needed
    @property
    def columns(self) -> Columns | None: ...  # to judge a model by; None: there are features alone
    @property
    def unknown_values(self) -> Mapping[str, int]: ...  # of a new file: rows by column with a value that training did not know, or hardly
    @property
    def own_rows(self) -> str: ...  # of which value has which row, where that follows from these files alone; else empty
    @property
    def hottest(self) -> Hottest: ...  # for planners that place a table row by row
    @property
    def item_names(self) -> Callable[[], Sequence[str]] | None: ...  # of items from 1 on, as the data write them
    @property
    def history_counts(self) -> HistoryCounts | None: ...  # None where samples are no histories
    @property
    def held_out(self) -> Mapping[str, HeldOutItems]: ...  # by split; empty where no items are held out
