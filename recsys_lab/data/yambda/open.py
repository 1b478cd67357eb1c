"""Yambda's events, from Parquet or by law, as samples of DLRMv4: train, then a day for validation, then one for test.

Windows are days from second 0. The last is the test, the one before it the validation: 300 and 299 of Yambda's, as MLPerf judges 299. So a
split's AUC is a window's AUC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from recsys_lab.base.ranges import Count, CountFromZero, Length, OneOf, RowCount, Seed
from recsys_lab.data.cache import cache_folder, digest, prepared
from recsys_lab.data.columns import read_row_counts, write_row_counts
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.in_order import InOrder, measured
from recsys_lab.data.measure import counted
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.data.sources import check_root, source_identity
from recsys_lab.data.synthetic import exact_auc
from recsys_lab.data.yambda.features import READERS, features_of
from recsys_lab.data.yambda.law import DAYS, Law
from recsys_lab.data.yambda.parquet import files_of, mapping_of, user_events
from recsys_lab.data.yambda.samples import HISTORIES, HistoryRule, SampleSplit, Windows
from recsys_lab.data.yambda.store import Store, write
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, measured_access
from recsys_lab.tables.lengths import Lengths

SIZES = ("50m", "500m", "5b")
#: Events that are drawn by law at most: 20 GB would be more than a test is worth.
MOST_EVENTS = 200_000_000
#: Samples, evenly spread over train, whose look-ups are counted; and that the best AUC is computed on.
MEASURED_SAMPLES, JUDGED_SAMPLES = 20_000, 200_000
_BLOCK = 1024
#: Events that are drawn of a law with more of them, and samples in a row, to see what these have in common: MLPerf's batch of a rank.
FEW_EVENTS, IN_ORDER_SAMPLES = 3_000_000, 1024
#: Published shares of distinct ids, of Yambda-5b in a rank's batch of 1,024: rank r of R has samples r, r + R and so on.
PUBLISHED_DISTINCT: Mapping[str, float] = {"item_id": 0.024, "album_id": 0.015, "artist_id": 0.006}
#: Of what is kept of the measured samples.
LAYOUT = 2

Size = Annotated[str, OneOf(SIZES)]
HistoryKind = Annotated[str, OneOf(HISTORIES)]
TableRows = dict[Annotated[str, OneOf(tuple(READERS))], RowCount]


def open_yambda(
    wanted: tuple[Feature, ...] | None = None,
    *,
    root: str | None,
    size: Size,
    rows: TableRows,
    history: HistoryKind,
    max_history: Length,
    min_history: CountFromZero,
    scan: Length,
    first_window: CountFromZero,
    held_out_windows: Count,
    cache: str | None,
) -> OpenDataSet:
    """Yambda as it is published, in `root`: flat/SIZE/multi_event.parquet, artist_item_mapping.parquet, album_item_mapping.parquet.

    Args:
        wanted: ignored: the data decide the tables.
        root: the folder.
        size: which of its sizes.
        rows: of each table. Crosses are hashed into theirs; other ids must fit.
        history: a choice of `HISTORIES`.
        max_history: the longest history.
        min_history: events of a user before its first sample.
        scan: how many events before a sample are looked at.
        first_window: of train.
        held_out_windows: days of the validation split, and as many of the test split.
        cache: where the sorted events are kept.

    Raises:
        UserError: a missing file, or one of another schema; times that run backwards, an unknown event type, an id outside its table.
    """
    files = files_of(check_root(root), size)
    identity = {"sources": [source_identity(path) for path in files.all], "rows": dict(rows), "min_history": min_history}

    def prepare(folder: Path) -> dict:
        items = rows["item_id"]
        artists, albums = (mapping_of(path, name, items, rows[name]) for path, name in files.mappings)
        return write(folder, user_events(files.events, items, rows["uid"], folder), artists, albums, min_history)

    folder, meta = prepared(cache_folder(cache), "yambda", identity, prepare)
    rule = HistoryRule(history, max_history, scan)
    notes = ("of several artists or albums of an item the lowest id counts; an item without one has row 0",)
    return _opened(folder, meta, rule, rows, (first_window, held_out_windows), digest(["yambda", identity]), notes, cache_folder(cache))


def open_yambda_law(
    wanted: tuple[Feature, ...] | None = None,
    *,
    users: RowCount,
    rows: TableRows,
    median_events: Count,
    most_events: Count,
    history: HistoryKind,
    max_history: Length,
    min_history: CountFromZero,
    scan: Length,
    first_window: CountFromZero,
    held_out_windows: Count,
    seed_of_truth: Seed,
    cache: str | None,
) -> OpenDataSet:
    """The same without a file: events by law (law.py), of so many `users`, with a planted truth.

    Args:
        wanted: ignored.
        users: how many; their ids are 0, 1, ...
        rows: of each table.
        median_events: of a user.
        most_events: of a user.
        history: a choice of `HISTORIES`.
        max_history: the longest history.
        min_history: events of a user before its first sample.
        scan: how many events before a sample are looked at.
        first_window: of train.
        held_out_windows: days of the validation split, and as many of the test split.
        seed_of_truth: another one, another data set.
        cache: where the drawn events are kept.

    Raises:
        UserError: more users than rows of their table; no user with a sample.
    """
    features_of(rows, 1.0)
    if users > rows["uid"]:
        raise UserError("more users than rows", where="data.users", given=f"{users:,}", allowed=f"at most data.rows.uid, {rows['uid']:,}")
    law, rule = Law(users, rows, median_events, most_events, seed_of_truth), HistoryRule(history, max_history, scan)
    identity = {"law": law.to_plain(), "min_history": min_history}
    if users * median_events > MOST_EVENTS:
        return _by_formula(law, rule, min_history, held_out_windows, identity, cache_folder(cache))
    folder, meta = prepared(
        cache_folder(cache), "yambda_law", identity, lambda at: write(at, law.blocks(), law.artists(), law.albums(), min_history)
    )
    notes = ("events by law, with a planted truth",)
    fingerprint = digest(["yambda_law", identity])
    return _opened(folder, meta, rule, rows, (first_window, held_out_windows), fingerprint, notes, cache_folder(cache), law)


def _opened(
    folder: Path,
    meta: dict,
    rule: HistoryRule,
    rows: Mapping[str, int],
    cut: tuple[int, int],
    identity: str,
    notes: tuple[str, ...],
    cache: Path,
    law: Law | None = None,
) -> OpenDataSet:
    """The data set of a prepared folder. `cut`: train's first window, and how many each other split has. `law`: of the events, if known."""
    store = Store.load(folder, meta)
    windows, (first_window, held_out) = len(store.window_ends), cut
    least = first_window + 2 * held_out + 1
    if windows < least:
        given = f"{windows} days with samples, of {meta['events']:,} events of {meta['users']:,} users"
        allowed = f"{least:,} or more: train, validation and test"
        raise UserError("too few days", where="data.min_history", given=given, allowed=allowed, remedy="a smaller data.min_history")
    test, validation = windows - held_out, windows - 2 * held_out
    edges = {"train": (first_window, validation), "validation": (validation, test), "test": (test, windows)}
    begin = (0, *store.window_ends)
    splits = {name: SampleSplit(store, rule, rows, begin[a], begin[b] - begin[a]) for name, (a, b) in edges.items()}
    if empty := [name for name, split in splits.items() if not split.rows]:
        remedy = "a smaller data.min_history, or more users"
        raise UserError(f"the {empty[0]} split is empty", where="data", given=f"{meta['samples']:,} samples in all", remedy=remedy)
    fingerprint = digest([identity, asdict(rule), *cut])
    history, folder = _measured(splits["train"], rows, fingerprint, cache)
    features = features_of(rows, history.mean)
    samples = min(MEASURED_SAMPLES, splits["train"].rows)
    counts = read_row_counts(folder, [rows[table] for table in READERS])
    detail = f"{samples:,} samples of train, evenly spread"
    best = _best_aucs(splits, law, fingerprint, cache) if law else {}
    said = [f"best reachable AUC on {name}: {auc:.4f}" for name, auc in best.items() if name != "train"]
    read = f"{meta['events']:,} events of {meta['users']:,} users; {meta['samples']:,} samples, histories of {history}"
    return OpenDataSet(
        features,
        0,
        splits,
        AccessStatistics({table: measured_access(table, own, samples, detail) for table, own in zip(READERS, counts)}),
        fingerprint,
        (read, *notes, *said),
        best,
        row_counts=lambda: read_row_counts(folder, [rows[table] for table in READERS]),
        columns=Windows(splits),
        own_rows=identity,
        history=history,
    )


def _measured(train: SampleSplit, rows: Mapping[str, int], fingerprint: str, cache: Path) -> tuple[Lengths, Path]:
    """The lengths of histories, and the folder of how often each row is looked up, of samples that are evenly spread over train."""
    numbers = np.unique(np.linspace(0, train.rows - 1, min(MEASURED_SAMPLES, train.rows)).astype(np.int64))

    def prepare(folder: Path) -> dict:
        blocks = (numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK))
        counts = counted(train, features_of(rows, 1.0), blocks)
        write_row_counts(folder, counts)
        measured = Lengths.of(train.lengths(numbers))
        return {"lengths": measured.values, "shares": measured.shares}

    folder, meta = prepared(cache, "yambda_access", [fingerprint, LAYOUT], prepare)
    return Lengths(tuple(meta["lengths"]), tuple(meta["shares"]), float(train.rule.max_history)), folder


def _best_aucs(splits: Mapping[str, SampleSplit], law: Law, fingerprint: str, cache: Path) -> dict[str, float]:
    """Of the true probability against the drawn labels, on a split's first samples; none where there is one class only."""

    def computed(_: Path) -> dict:
        found = {name: _best_auc(split, law) for name, split in splits.items()}
        return {"best": {name: auc for name, auc in found.items() if auc is not None}}

    return prepared(cache, "yambda_auc", [fingerprint], computed)[1]["best"]


def _best_auc(split: SampleSplit, law: Law) -> float | None:
    store = split.store
    at = store.samples[split.begin : split.begin + min(split.rows, JUDGED_SAMPLES)]
    users = store.users[np.searchsorted(store.first, at, side="right") - 1]
    scores = law.true_probability(users, store.items[at], store.times[at].astype(np.int64))
    labels = store.kinds[at] & 1 > 0
    auc = exact_auc(scores, labels)
    return None if np.isnan(auc) else auc


@dataclass(frozen=True)
class TooLargeSplit:
    """`rows` samples of a law with too many events to draw: it can be planned and simulated for, not read."""

    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        raise UserError(
            "too many events to draw",
            where="data.users",
            given=f"{self.rows:,} samples",
            allowed=f"users times data.median_events up to {MOST_EVENTS:,}",
            remedy="experiment=dlrm_v4/small trains here; mode=simulate and mode=plan need no events",
        )


def _by_formula(law: Law, rule: HistoryRule, min_history: int, held_out: int, identity: dict, cache: Path) -> OpenDataSet:
    """What is known of a law without a single event."""
    lengths, weights = law.history_lengths(min_history, rule.max_history, rule.scan)
    if not weights.sum():
        raise UserError("no user has so many events", where="data.min_history", given=min_history, allowed="below data.most_events")
    history = Lengths.of(lengths, weights, float(rule.max_history), "formula")
    samples = int(np.maximum(law.counts - min_history, 0).sum())
    splits = {"train": max(1, DAYS - 2 * held_out), "validation": held_out, "test": held_out}
    note = f"by law: {law.users:,} users, about {samples:,} samples, histories of {history}"
    return OpenDataSet(
        features_of(law.rows, history.mean),
        0,
        {name: TooLargeSplit(max(1, int(samples * days / DAYS))) for name, days in splits.items()},
        law.access(history.mean),
        digest(["yambda_law", identity, asdict(rule)]),
        (note,),
        hottest_by_law=lambda table, count: np.arange(min(count, law.rows[table]), dtype=np.int64),
        history=history,
        in_order=partial(_in_order, law, rule, min_history, cache, 1 + history.mean),
    )


def _in_order(law: Law, rule: HistoryRule, min_history: int, cache: Path, look_ups: float) -> InOrder:
    """Of the first users of the law, whose events are drawn: a user's do not depend on how many others there are."""
    few = replace(law, users=min(law.users, max(1, FEW_EVENTS // law.median_events)))

    def prepare(folder: Path) -> dict:
        meta = write(folder, few.blocks(), few.artists(), few.albums(), min_history)
        split = SampleSplit(Store.load(folder, meta), rule, law.rows, 0, meta["samples"])
        if not split.rows:
            raise UserError("no user has so many events", where="data.min_history", given=min_history, remedy="a smaller one")
        found = measured(split, features_of(law.rows, 1.0), IN_ORDER_SAMPLES, MOST_EVENTS)
        for file in folder.glob("*.bin"):
            file.unlink()
        distinct = {table: list(sizes.items()) for table, sizes in found.distinct.items()}
        return {"distinct": distinct, "spreads": list(found.spreads.items())}

    _, meta = prepared(cache, "yambda_law_in_order", [few.to_plain(), asdict(rule), min_history, IN_ORDER_SAMPLES], prepare)
    distinct = {table: {int(n): count for n, count in sizes} for table, sizes in meta["distinct"].items()}
    samples = max(distinct["item_id"])
    shares = {table: distinct[table][samples] / samples / look_ups for table in PUBLISHED_DISTINCT}
    words = ", ".join(f"{table} {share:.2%} (published {PUBLISHED_DISTINCT[table]:.1%})" for table, share in shares.items())
    note = f"distinct ids of {samples:,} samples in a row, by law: {words}; those published are of samples that ranks take in turn"
    return InOrder(distinct, {int(n): spread for n, spread in meta["spreads"]}, note)
