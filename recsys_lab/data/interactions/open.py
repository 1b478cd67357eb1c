"""User-item interactions: logs and sequences, by leave-one-out. A user's last item is the test, the one before it the validation.

There are two objectives. With next_item a row is a user's history, with the item after each of its items and an item that the user never
had. With click a row is a history, a candidate item, and whether the user had it next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.losses import BINARY, LOSSES, SAMPLED_SOFTMAX
from recsys_lab.base.ranges import Length, OneOf, Seed
from recsys_lab.data.cache import cache_folder, digest, prepared
from recsys_lab.data.columns import read_row_counts, write_row_counts
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.interactions.files import log_in
from recsys_lab.data.interactions.format import COLUMNS, Layout, plain_name, sniff
from recsys_lab.data.interactions.guess import OTHER
from recsys_lab.data.interactions.held_out import HeldOut
from recsys_lab.data.interactions.histories import FEWEST_TO_HOLD_OUT, TIME_ROWS, Histories
from recsys_lab.data.interactions.inputs import Inputs
from recsys_lab.data.interactions.known import items_of, keep
from recsys_lab.data.interactions.prepare import prepared_histories
from recsys_lab.data.interactions.rows import Clicks, HeldOutClicks, HistoriesBefore, NextItems
from recsys_lab.data.interactions.side_columns import ITEM, USER
from recsys_lab.data.interactions.side_files import side_file
from recsys_lab.data.interactions.side_wanted import Sides, names_in_log, wanted_sides
from recsys_lab.data.measure import measure_row_counts
from recsys_lab.data.parts import Source
from recsys_lab.data.protocol import Feature, HistoryCounts, Split
from recsys_lab.data.sources import check_root, only_file
from recsys_lab.data.text import OnBadLine
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, measured_access

OBJECTIVES = ("next_item", "click")
POOLINGS = ("none", "sum", "mean")
Objective = Annotated[str, OneOf(OBJECTIVES)]
Pooling = Annotated[str, OneOf(POOLINGS)]
Loss = Annotated[str, OneOf(LOSSES)]
Negatives = Annotated[int, Strict(), Interval(ge=1, le=2**16)]
#: Of next_item, where the config leaves them open: for each place of a history, or for a history.
NEGATIVES = {BINARY: 1, SAMPLED_SOFTMAX: 128}
Passes = Annotated[int, Strict(), Interval(ge=1, le=10**6)]
#: Of a history, so many items at least and at most are read where the config does not say how many, and all of so many users.
SHORTEST, LONGEST, SHARE_OF_USERS = 20, 200, 0.95
#: Which of a user's items is held out, counted from the end.
HELD_OUT = {"validation": 2, "test": 1}


def open_interactions(
    wanted: tuple[Feature, ...] | None = None,
    *,
    root: str | None,
    file: str | None,
    format: str | None,
    columns: list[str] | None,
    on_bad_line: OnBadLine,
    category: str | None,
    side: list[str] | None = None,
    lists: dict[str, str] | None = None,
    items_file: str | None = None,
    users_file: str | None = None,
    time: bool,
    event_times: bool,
    objective: Objective,
    pooling: Pooling,
    max_length: Length | None,
    loss: Loss | None,
    negatives: Negatives | None,
    passes: Passes,
    seed_of_negatives: Seed,
    cache: str | None,
) -> OpenDataSet:
    """The data set in `root`/`file`. `wanted` is ignored: the data decide the tables.

    `loss`: of next_item, which says what `negatives` are of: each place of a history (binary), a history (sampled_softmax), or none
    (in_batch_softmax; softmax: data/catalogue.py has every item). `pooling`: of all features. None makes them sequences. `passes`: of the
    train split over the users, each with other negatives. `side`: columns of the log, of `items_file` and of `users_file` that say more of
    events, items and users, for next_item; `lists`: what separates several values in a cell of these.
    Raises UserError for a missing or bad file, and for options that cannot go together.
    """
    if objective == "next_item" and pooling != "none":
        raise UserError("the next item is predicted from a sequence", where="data.pooling", given=pooling, allowed="none")
    if objective != "next_item" and (side or items_file or users_file):
        raise UserError("side columns are for the next item", where="data.side", given=f"objective {objective}", allowed="next_item")
    folder_of_files = check_root(root)
    source = log_in(folder_of_files, file, [folder_of_files / name for name in (items_file, users_file) if name])
    roles = columns and [OTHER if name in (side or ()) and name not in COLUMNS else name for name in columns]
    layout = sniff(source, format, roles)  # data.columns may name side columns
    named = {ITEM: items_file, USER: users_file}
    layout, sides = _sides(folder_of_files, source, columns, layout, side or [], lists or {}, named)
    if (time or event_times) and not layout.has_times:
        key = "data.time" if time else "model.time_bias"
        raise UserError("there are no times", where=key, given="true", allowed="false", remedy="or name their column: data.columns")
    attributes = only_file(folder_of_files, category, (), "data.category") if category else None
    folder, meta = prepared_histories(source, layout, on_bad_line, attributes, sides, cache_folder(cache))
    histories, notes = Histories.load(folder, meta), list(meta["notes"])
    if max_length is None:
        max_length = _max_length(histories)
        notes.append(f"histories are read from their end, {max_length} items at most: {SHARE_OF_USERS:.0%} of users have no more")
    inputs = Inputs(histories, max_length, time, event_times)
    loss = loss or BINARY
    train: NextItems | Clicks = Clicks(inputs, passes, seed_of_negatives)
    drawn = NEGATIVES.get(loss, 0) if negatives is None or loss not in NEGATIVES else negatives
    if objective == "next_item":
        train = NextItems(inputs, passes, seed_of_negatives, drawn, by_place=loss == BINARY)
    held_out = _held_out(inputs, seed_of_negatives)
    evaluated: Callable[[Inputs, HeldOut], Split] = HistoriesBefore if objective == "next_item" else HeldOutClicks
    features = (*_features(train, meta, time, pooling), *_of_sides(histories, train, meta))
    data = OpenDataSet(
        features,
        0,
        {"train": train} | {name: evaluated(inputs, samples) for name, samples in held_out.items()},
        AccessStatistics({}),
        digest(
            [
                "interactions",
                meta["fingerprint"],
                objective,
                event_times,
                seed_of_negatives,
                max_length,
                loss,
                drawn,
                passes,
                [vars(f) for f in features],
            ]
        ),
        (*notes, *_of_empty_splits(train.rows, held_out)),
        held_out=held_out,
        keep=partial(keep, folder, meta, max_length),
        item_names=partial(items_of, folder),
        own_rows=digest(["interactions", meta["fingerprint"]]),
        chooses_settings=objective == "next_item",
        history_counts=HistoryCounts(meta["users"], meta["items"], meta["interactions"], max_length),
    )
    return _measured(data, passes, cache_folder(cache)) if train.rows else _counted(data, inputs.histories)


def _sides(
    root: Path,
    source: Source,
    columns: list[str] | None,
    layout: Layout,
    side: list[str],
    lists: dict[str, str],
    named: dict[str, str | None],
) -> tuple[Layout, Sides]:
    """The layout of the log, and the side columns that are asked for. `named`: the files of items and of users."""
    stored = names_in_log(layout, source, columns)
    own = {role: plain_name(stored[layout.columns.index(role)]) if role in layout.columns else role for role in (USER, ITEM)}
    files = [side_file(root, name, f"data.{of}s_file", of, own[of]) for of, name in named.items() if name]
    return wanted_sides(layout, source, stored, side, lists, files)


def _of_sides(histories: Histories, train: NextItems | Clicks, meta: dict) -> list[Feature]:
    """The features of side columns: as long as the history, or a user's."""
    length = train.mean_length if train.rows else meta["interactions"] / meta["users"]
    return [Feature(s.feature, s.rows, s.mean_ids * (1.0 if s.of == USER else length), "none") for s in histories.sides]


def _max_length(histories: Histories) -> int:
    """As many items as nearly all users have, in steps of ten."""
    longest = float(np.quantile(histories.lengths, SHARE_OF_USERS)) if histories.users else 0.0
    return int(min(max(-(-longest // 10) * 10, SHORTEST), LONGEST))


def _features(train: NextItems | Clicks, meta: dict, time: bool, pooling: str) -> tuple[Feature, ...]:
    """The columns of the splits' rows, in their order."""
    items, categories = meta["items"] + 1, meta["categories"] + 1
    length = train.mean_length if train.rows else meta["interactions"] / meta["users"]
    both: tuple[tuple[str, float], ...] = (("candidate", 1.0),)
    if isinstance(train, NextItems):
        both = ("positive", length), ("negative", train.negatives * (length if train.by_place else 1.0))
    features = [Feature(name, items, mean, pooling, "item") for name, mean in (("item", length), *both)]
    if meta["categories"]:
        features.append(Feature("category", categories, length, pooling, "category"))
        if isinstance(train, Clicks):
            features.append(Feature("candidate_category", categories, 1.0, pooling, "category"))
    if time:
        features.append(Feature("time", TIME_ROWS, length, pooling, "time"))
    return tuple(features)


def _of_empty_splits(train_rows: int, held_out: dict[str, HeldOut]) -> list[str]:
    """A note, or none: which splits have no rows, so that a model can be planned and not trained."""
    rows = {"train": train_rows} | {split: samples.rows for split, samples in held_out.items()}
    if not (empty := [split for split, count in rows.items() if count == 0]):
        return []
    need = f"users with {FEWEST_TO_HOLD_OUT} interactions or more, in train one more, and an item that they never had"
    return [f"too few interactions to train on: nothing is in {', '.join(empty)}, which need {need}"]


def _held_out(inputs: Inputs, seed: int) -> dict[str, HeldOut]:
    """The users with a validation and a test item, and with an item left that they never had."""
    users = inputs.histories.held_out()
    users = users[inputs.histories.unseen.count(users) > 0]
    return {name: HeldOut(inputs, users, back, seed) for name, back in HELD_OUT.items()}


def _counted(data: OpenDataSet, histories: Histories) -> OpenDataSet:
    """`data` without a train split, with how often each row is in the histories."""
    values = {"item": histories.ids}
    if histories.gaps is not None:
        values["time"] = histories.gaps
    if histories.categories is not None:
        values["category"] = histories.categories[histories.ids]
    everyone = np.arange(histories.users), np.arange(len(histories.ids)), histories.lengths
    sides = zip(histories.sides, Inputs(histories, 1, False).side_columns(*everyone))
    values |= {side.feature: ids for side, (_, ids) in sides}
    rows_of = {f.table_name: f.rows for f in data.features}
    counts = {table: np.bincount(values[table], minlength=rows) for table, rows in rows_of.items()}
    detail = f"{len(histories.ids):,} interactions, none of them in train"
    access = {table: measured_access(table, count, histories.users, detail) for table, count in counts.items()}
    return replace(data, access=AccessStatistics(access), row_counts=lambda: list(counts.values()))


def _measured(data: OpenDataSet, passes: int, cache: Path) -> OpenDataSet:
    """`data` with how often each row is looked up in the first pass over the users. Other passes differ in the random negatives alone."""
    samples = data.splits["train"].rows // passes

    def prepare(folder: Path) -> dict:
        write_row_counts(folder, measure_row_counts(data, samples))
        return {}

    folder, _ = prepared(cache, "interactions_access", [data.fingerprint], prepare)
    rows_of = {f.table_name: f.rows for f in data.features}
    counts = read_row_counts(folder, list(rows_of.values()))
    detail = f"{samples:,} samples of train, the first of {passes} passes" if passes > 1 else f"{samples:,} samples of train"
    access = {table: measured_access(table, count, samples, detail) for table, count in zip(rows_of, counts)}
    return replace(data, access=AccessStatistics(access), row_counts=lambda: read_row_counts(folder, list(rows_of.values())))
