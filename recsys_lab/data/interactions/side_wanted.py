"""Which side columns are asked for, and where each stands: in the log, in a file of items, or in one of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from recsys_lab.data import parquet
from recsys_lab.data.interactions.format import COLUMNS, Layout, column_names, plain_name
from recsys_lab.data.interactions.guess import ITEM, OTHER, RATING, TIME, USER
from recsys_lab.data.interactions.side_files import SideFile
from recsys_lab.data.parts import Source
from recsys_lab.data.protocol import CONTEXT, SIDE
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
    """All side columns that are read: of the log, and of files of items and of users."""

    log: tuple[Wanted, ...] = ()
    files: tuple[tuple[SideFile, tuple[Wanted, ...]], ...] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.log or self.files)

    @property
    def every(self) -> list[Wanted]:
        return [*self.log, *(one for _, of_file in self.files for one in of_file)]

    def plain(self) -> dict[str, Any]:
        """What tells other side columns from these, as plain data."""
        of_files = {file.key: [list(vars(one).values()) for one in wanted] for file, wanted in self.files}
        return {"log": [list(vars(one).values()) for one in self.log]} | of_files


def names_in_log(layout: Layout, source: Source, given: Sequence[str] | None) -> list[str]:
    """The name of each field of a log, as it is stored; of one without a name what it is taken for. `given`: data.columns."""
    if layout.kind == "sequences":
        return []
    if layout.names is not None:
        names = [*layout.names, *source.keys]
    elif layout.header is not None:
        names = [*fields_of(layout.header, layout.separator, layout.quoted), *source.keys]
    else:
        names = list(layout.columns)
    own = [name if name not in COLUMNS else "" for name in given or ()]
    return [one or name for one, name in zip_longest(own, names[: len(layout.columns)], fillvalue="")]


def wanted_sides(
    layout: Layout, source: Source, stored: Sequence[str], side: Sequence[str], lists: Mapping[str, str], files: Sequence[SideFile]
) -> tuple[Layout, Sides]:
    """`layout` with the columns `side` of the log, and where all of `side` stand.

    `stored`: the names of the log's fields. `lists`: what separates the values of a cell, by column.
    UserError for a column that is nowhere, in two places, or no side column, and for a file of which nothing is read.
    """
    names = list(map(plain_name, stored))
    in_lists = _lists_in(source, stored) | {name: of for file in files for name, of in file.lists.items()}
    _check_lists(lists, side, in_lists)
    if twice := [name for name in side if list(side).count(name) > 1]:
        raise UserError("a column is named twice", where="data.side", given=twice[0], remedy="name it once")
    places: dict[str, SideFile | int] = {}
    for name in side:
        at = _place_in_log(name, names, layout)
        having: list[SideFile | int] = [*([] if at is None else [at]), *(file for file in files if name in file.columns)]
        if len(having) != 1:
            raise _not_one(name, having, names, layout, source, files)
        if at is not None and (why := _NOT_SIDE.get(layout.columns[at])) is not None:
            raise UserError(f"the {layout.columns[at]} is no side column", where="data.side", given=name, remedy=why)
        places[name] = having[0]
    for file in files:
        if file not in places.values():
            allowed = ", ".join(file.columns) or "none"
            raise UserError(
                "nothing is read of it", where=file.key, given=file.source.name, allowed=allowed, remedy="name columns: data.side=[...]"
            )
    prefixed = [f"{_prefix(places[name])}{name}" for name in side]
    features, separators = dict(zip(side, feature_names(prefixed, "data.side"))), in_lists | dict(lists)
    of_log = {name: place for name, place in places.items() if isinstance(place, int)}
    columns = list(layout.columns)
    for name, place in of_log.items():
        columns[place] = RATING if columns[place] == RATING else features[name]
    whole = replace(layout, columns=tuple(columns))
    frame = column_names(whole)
    log = tuple(Wanted(name, features[name], frame[place], separators.get(name)) for name, place in of_log.items())
    of_files = (
        (file, tuple(Wanted(name, features[name], name, separators.get(name)) for name in side if places[name] is file)) for file in files
    )
    return whole, Sides(log, tuple(of_files))


def _prefix(place: SideFile | int) -> str:
    return CONTEXT if isinstance(place, SideFile) and place.of == USER else SIDE


def _place_in_log(name: str, names: Sequence[str], layout: Layout) -> int | None:
    """Which field of the log is called so. The rating's may be called by what it is."""
    if name in names:
        return list(names).index(name)
    return layout.columns.index(RATING) if name == RATING and RATING in layout.columns else None


def _not_one(
    name: str, having: Sequence[object], names: Sequence[str], layout: Layout, source: Source, files: Sequence[SideFile]
) -> UserError:
    """The refusal of a column that is nowhere, or in two places."""
    if having:
        where = ", ".join(one.source.name if isinstance(one, SideFile) else source.name for one in having)
        return UserError("a column of this name is in two files", where="data.side", given=f"{name}: {where}", remedy="rename one of them")
    of_log = [own for own, column in zip(names, layout.columns) if column in (RATING, OTHER)]
    every = [*of_log, *(one for file in files for one in file.columns)]
    remedy = did_you_mean(name, every) or "data.items_file and data.users_file have more; data.columns names fields without a header"
    return UserError(
        "no such column", where="data.side", given=name, allowed=", ".join(every) or "none: the log has no more", remedy=remedy
    )


def _check_lists(lists: Mapping[str, str], side: Sequence[str], in_lists: Mapping[str, str]) -> None:
    """UserError for a separator of a column that is not read, or that a file has as lists, and for one that is none."""
    for name, separator in lists.items():
        if name not in side:
            remedy = did_you_mean(name, side) or "name it in data.side too"
            raise UserError("no side column", where="data.lists", given=name, allowed=", ".join(side) or "none", remedy=remedy)
        if in_lists.get(name) == parquet.LIST_SEPARATOR:
            raise UserError("a list already", where=f"data.lists.{name}", given=separator, remedy="take it out")
        if not isinstance(separator, str) or not separator:
            allowed = "what separates the values of a cell, such as '|', or json"
            raise UserError("no separator", where=f"data.lists.{name}", given=separator, allowed=allowed)


def _lists_in(source: Source, stored: Sequence[str]) -> dict[str, str]:
    """What separates several values in a cell of a log, by column, where the file says it: lists of Parquet, RecBole's token_seq."""
    path = source.parts[0].path
    by_header = {plain_name(name): " " for name in stored if name.endswith(":token_seq")}
    if not parquet.is_parquet(path):
        return by_header
    return {name: parquet.LIST_SEPARATOR for name, kind in parquet.types_of(path).items() if parquet.is_list(kind)}
