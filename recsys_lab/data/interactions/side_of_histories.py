"""The side columns of histories, in the order of their events, items and users, and what is said of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from recsys_lab.data.interactions.guess import ITEM as ITEM_OF_LOG
from recsys_lab.data.interactions.histories import Histories
from recsys_lab.data.interactions.side_columns import EVENT, ITEM, USER, SideColumn, encoded
from recsys_lab.data.interactions.side_files import SideFile
from recsys_lab.data.interactions.side_wanted import Sides, Wanted
from recsys_lab.data.table.column_checks import list_separator
from recsys_lab.data.table.encode import as_pairs


@dataclass(frozen=True)
class Log:
    """A log that was read. `events`: in the order of the file; `order` [N]: which of them stands at each place of `histories`.

    `items`, `users`: the words of the item rows from 1 on, and of the users.
    """

    histories: Histories
    events: pl.DataFrame
    order: np.ndarray
    items: Sequence[str]
    users: Sequence[str]


def with_sides(log: Log, sides: Sides) -> tuple[Histories, list[str]]:
    """The histories with side columns, and what the user should know of these. UserError for a file that has none of the items or users."""
    if not sides:
        return log.histories, []
    notes, columns, odd = list[str](), [_of_log(log, one) for one in sides.log], dict[str, str]()
    for file, wanted in sides.files:
        cells, of_file = file.cells([one.column for one in wanted], log.items if file.of == ITEM else log.users)
        columns += [_of_file(log, file, one, cells[one.column]) for one in wanted]
        odd |= _like_lists(wanted, cells)
        notes += of_file
    odd = _like_lists(sides.log, log.events) | odd
    said = [f"{one.name} ({_said(column)})" for one, column in zip(sides.every, columns)]
    notes.insert(0, f"side columns: {', '.join(said)}; row 0 of each is for missing values and those that train does not have")
    if odd:
        lists = shlex.quote(f"data.lists={as_pairs(odd)}")
        notes.append(f"several values in a cell, each combination counts as one value: {', '.join(odd)}; as lists: {lists}")
    return replace(log.histories, sides=tuple(columns)), notes


def _of_log(log: Log, wanted: Wanted) -> SideColumn:
    """A column of the log: of the items, where each item has one value on all of its events and some have several, else of the events."""
    cells = log.events[wanted.column].gather(log.order)
    column = encoded(wanted.name, wanted.feature, EVENT, cells, wanted.separator, log.histories.in_train)
    column = replace(column, mean_ids=len(column.ids) / len(cells))
    if not log.events.select(ITEM_OF_LOG, wanted.column).n_unique() == len(log.items) < log.events.height:
        return column
    _, firsts = np.unique(log.histories.ids, return_index=True)
    counts, ids = column.read(firsts)  # of items 1, 2, ...; row 0 is no item, and has no value
    ends = None if column.ends is None else np.cumsum([1, *counts])
    return replace(column, of=ITEM, ids=np.concatenate([[0], ids]).astype(np.int32), ends=ends)


def _of_file(log: Log, file: SideFile, wanted: Wanted, cells: pl.Series) -> SideColumn:
    """A column of a file of items or users. What is learnt of train is learnt of those that its events have."""
    if file.of == USER:
        column = encoded(wanted.name, wanted.feature, USER, cells, wanted.separator, np.ones(len(cells), bool))
        return replace(column, mean_ids=len(column.ids) / len(cells))
    in_train = np.zeros(len(cells) + 1, bool)
    in_train[log.histories.ids[log.histories.in_train]] = True
    column = encoded(wanted.name, wanted.feature, ITEM, pl.concat([pl.Series([None], dtype=pl.String), cells]), wanted.separator, in_train)
    counts, _ = column.read(np.arange(len(cells) + 1))
    return replace(column, mean_ids=float(counts[log.histories.ids].mean()))


def _like_lists(wanted: Sequence[Wanted], cells: pl.DataFrame) -> dict[str, str]:
    """Columns whose cells look like lists and are not read so, with what separates their values."""
    plain = {one.name: cells[one.column].replace("", None).drop_nulls() for one in wanted if one.separator is None}
    separators = {name: list_separator(known) for name, known in plain.items() if len(known)}
    return {name: separator for name, separator in separators.items() if separator is not None}


def _said(column: SideColumn) -> str:
    values = f"{column.rows - 1:,} values" if not column.is_number else f"numbers, {column.rows - 1} buckets by the quantiles of train"
    lists = f", {column.mean_ids:.1f} each, averaged" if column.is_list else ""
    return f"of each {column.of}: {values}{lists}"
