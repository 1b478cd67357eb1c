"""Which side columns are asked for, and where each stands: in the log, in a file of items, or in one of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from recsys_lab.data import parquet
from recsys_lab.data.interactions.format import COLUMNS, Layout, column_names, plain_name
from recsys_lab.data.interactions.guess import ITEM, OTHER, RATING, TIME, USER
from recsys_lab.data.parts import Source
from recsys_lab.data.protocol import SIDE
from recsys_lab.data.separators import fields_of
from recsys_lab.data.table.prepare import feature_names
from recsys_lab.errors import UserError, did_you_mean

#: Why the columns of a log that it is told by are no side columns.
_NOT_SIDE = {
    USER: "the histories are the users'; data.users_file has what is known of them",
    ITEM: "it is what a model is asked for",
    TIME: "data.time=true reads it, and model.time_bias of model=hstu",
}


@dataclass(frozen=True)
class Wanted:
    """A side column. `column`: in the frames of the file's rows. `separator`: of several values in a cell; None: there is one."""

    name: str
    feature: str
    column: str
    separator: str | None = None


@dataclass(frozen=True)
class Sides:
    """All side columns that are read."""

    log: tuple[Wanted, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.log)

    def plain(self) -> dict[str, Any]:
        """What tells other side columns from these, as plain data."""
        return {"log": [list(vars(one).values()) for one in self.log]}


def names_in_log(layout: Layout, source: Source, given: Sequence[str] | None) -> list[str]:
    """The name of each field of a log; of one without a name what it is taken for. `given`: data.columns."""
    if layout.kind == "sequences":
        return []
    if layout.names is not None:
        names = list(map(plain_name, layout.names))
    elif layout.header is not None:
        names = [*map(plain_name, fields_of(layout.header, layout.separator, layout.quoted)), *source.keys]
    else:
        names = list(layout.columns)
    own = [name if name not in COLUMNS else "" for name in given or ()]
    return [one or name for one, name in zip_longest(own, names[: len(layout.columns)], fillvalue="")]


def of_log(
    layout: Layout, names: Sequence[str], side: Sequence[str], lists: Mapping[str, str], stored_lists: Mapping[str, str]
) -> tuple[Layout, tuple[Wanted, ...]]:
    """`layout` with the columns `side` of the log, whose fields have `names`, and what they are. UserError for one that is none.

    `lists`: what separates the values of a cell, by column; `stored_lists`: the same of columns that the files have as lists.
    """
    if twice := [name for name in side if list(side).count(name) > 1]:
        raise UserError("a column is named twice", where="data.side", given=twice[0], remedy="name it once")
    places = {}
    for name in side:
        place = names.index(name) if name in names else next((i for i, c in enumerate(layout.columns) if c == name == RATING), None)
        if place is None:
            allowed = (
                ", ".join(own for own, column in zip(names, layout.columns) if column in (RATING, OTHER)) or "none: the log has no more"
            )
            remedy = did_you_mean(name, names) or "name the fields of a log without a header: data.columns"
            raise UserError("no such column in the log", where="data.side", given=name, allowed=allowed, remedy=remedy)
        if (why := _NOT_SIDE.get(layout.columns[place])) is not None:
            raise UserError(f"the {layout.columns[place]} is no side column", where="data.side", given=name, remedy=why)
        places[name] = place
    features = dict(zip(side, feature_names([f"{SIDE}{name}" for name in side])))
    columns = list(layout.columns)
    for name, place in places.items():
        columns[place] = RATING if columns[place] == RATING else features[name]
    whole = replace(layout, columns=tuple(columns))
    frame = column_names(whole)
    separators = dict(stored_lists) | dict(lists)
    return whole, tuple(Wanted(name, features[name], frame[place], separators.get(name)) for name, place in places.items())


def check_lists(lists: Mapping[str, str], side: Sequence[str], stored_lists: Mapping[str, str]) -> None:
    """UserError for a separator of a column that is not read, or is a list already, and for one that is none."""
    for name, separator in lists.items():
        if name not in side:
            remedy = did_you_mean(name, side) or "name it in data.side too"
            raise UserError("no side column", where="data.lists", given=name, allowed=", ".join(side) or "none", remedy=remedy)
        if name in stored_lists:
            raise UserError("a list already", where=f"data.lists.{name}", given=separator, remedy="take it out")
        if not isinstance(separator, str) or not separator:
            allowed = "what separates the values of a cell, such as '|', or json"
            raise UserError("no separator", where=f"data.lists.{name}", given=separator, allowed=allowed)


def lists_in(source: Source) -> dict[str, str]:
    """The columns of a Parquet file whose cells are lists, with what separates these as text."""
    path = source.parts[0].path
    if not parquet.is_parquet(path):
        return {}
    return {name: parquet.LIST_SEPARATOR for name, kind in parquet.types_of(path).items() if parquet.is_list(kind)}
