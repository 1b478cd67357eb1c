"""The side columns of histories, in the order of their events, and what is said of them."""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np
import polars as pl

from recsys_lab.data.interactions.guess import ITEM as ITEM_OF_LOG
from recsys_lab.data.interactions.histories import Histories
from recsys_lab.data.interactions.side_columns import EVENT, ITEM, SideColumn, encoded
from recsys_lab.data.interactions.side_wanted import Sides
from recsys_lab.data.table.column_checks import list_separator
from recsys_lab.data.table.encode import as_pairs


def with_sides(histories: Histories, events: pl.DataFrame, order: np.ndarray, sides: Sides) -> Histories:
    """`histories` with side columns. `events`: the log in the order of the file; `order` [N]: which of them stands at each place."""
    if not sides:
        return histories
    columns = []
    for one in sides.log:
        cells = events[one.column].gather(order)
        column = encoded(one.feature, EVENT, cells, one.separator, histories.in_train)
        column = replace(column, mean_ids=len(column.ids) / len(cells))
        columns.append(_of_items(column, histories) if _is_items(events, one.column, histories.items) else column)
    return replace(histories, sides=tuple(columns))


def _is_items(events: pl.DataFrame, column: str, items: int) -> bool:
    """Whether each item has one value on all of its events, and some have several events."""
    return events.select(ITEM_OF_LOG, column).n_unique() == items < events.height


def _of_items(column: SideColumn, histories: Histories) -> SideColumn:
    """A column of events, as one of items: row 0, which is no item, has no value."""
    items, firsts = np.unique(histories.ids, return_index=True)
    assert len(items) == histories.items, "every item has an event"
    counts, ids = column.read(firsts)
    ends = None if column.ends is None else np.cumsum([1, *counts])
    return replace(column, of=ITEM, ids=np.concatenate([[0], ids]).astype(np.int32), ends=ends)


def said_sides(histories: Histories, events: pl.DataFrame, sides: Sides) -> list[str]:
    """Notes, or none: what the side columns are, and which have cells that look like lists."""
    if not sides:
        return []
    said = [f"{one.name} ({_said(side)})" for one, side in zip(sides.log, histories.sides)]
    notes = [f"side columns: {', '.join(said)}; row 0 of each is for missing values and those that train does not have"]
    whole = {one.name: list_separator(events[one.column].replace("", None).drop_nulls()) for one in sides.log if one.separator is None}
    if separators := {name: separator for name, separator in whole.items() if separator is not None}:
        lists = shlex.quote(f"data.lists={as_pairs(separators)}")
        notes.append(f"several values in a cell, each combination counts as one value: {', '.join(separators)}; as lists: {lists}")
    return notes


def _said(side: SideColumn) -> str:
    values = f"{side.rows - 1:,} values" if not side.is_number else f"numbers, {side.rows - 1} buckets by the quantiles of train"
    lists = f", {side.mean_ids:.1f} a cell, averaged" if side.is_list else ""
    return f"of each {side.of}: {values}{lists}"
