"""Files with a row an item, or a row a user: their columns, and the cells of each for the items or users of a log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recsys_lab.data.interactions.format import ID_NAMES, WHOLE, plain_name
from recsys_lab.data.interactions.side import attributes_of, text_of
from recsys_lab.data.parquet import LIST_SEPARATOR
from recsys_lab.data.parts import Source, source_of
from recsys_lab.data.sources import named_file, source_identity
from recsys_lab.data.table import files
from recsys_lab.errors import UserError

#: The only column of a JSON file of attribute lists: {item: [attribute, ...]}.
ATTRIBUTES = "attributes"
#: No column of a file can be called so.
_ID = "\0id"


@dataclass(frozen=True)
class SideFile:
    """A file of items or of users.

    Attributes:
        key: of the config, that names it.
        of: "item" or "user".
        source: where it lies.
        columns: by plain name the column as it is stored, without that of the ids.
        ids: the column of the ids, as it is stored; empty in a JSON file of attribute lists.
        lists: what separates several values in a cell, by plain name, where the file says it.
    """

    key: str
    of: str
    source: Source
    columns: Mapping[str, str]
    ids: str
    lists: Mapping[str, str]

    @property
    def identity(self) -> list:
        return [self.ids, *(source_identity(part.path) for part in self.source.parts)]

    def cells(self, columns: Sequence[str], names: Sequence[str]) -> tuple[pl.DataFrame, list[str]]:
        """Of `names` [n] the cells of `columns`, as text: a frame of n rows, null where there is none. Also what the user should know.

        UserError where the file cannot be read, or has none of `names`.
        """
        whole = self._rows(columns)
        ids = whole[_ID].str.strip_chars(" \t").str.replace(WHOLE, "$1")
        known = whole.with_columns(ids).filter(pl.col(_ID).is_not_null() & (pl.col(_ID) != ""))
        once = known.unique(_ID, keep="first", maintain_order=True)
        wanted = pl.DataFrame({_ID: names}, schema={_ID: pl.String})
        missing = len(names) - wanted.join(once, on=_ID, how="semi").height
        if missing == len(names):
            given = f"{len(once):,} others" if len(once) else "no rows"
            raise UserError(f"no {self.of} of the interactions is in it", where=self.source.path, given=given, remedy=f"{self.key}=null")
        notes = [f"{self.source.name}: {missing:,} of {len(names):,} {self.of}s are not in it"] if missing else []
        if again := len(known) - len(once):
            notes.append(f"{self.source.name}: {again:,} rows have the {self.of} of another: the first one counts")
        return wanted.join(once, on=_ID, how="left", maintain_order="left").drop(_ID), notes

    def _rows(self, columns: Sequence[str]) -> pl.DataFrame:
        """All rows: the ids, and `columns`, as text."""
        if not self.ids:
            lists = attributes_of(text_of(self.source.path), self.source.path)
            schema = {_ID: pl.String, ATTRIBUTES: pl.String}
            return pl.DataFrame({_ID: list(lists), ATTRIBUTES: [LIST_SEPARATOR.join(own) for own in lists.values()]}, schema=schema)
        stored = {self.ids: _ID} | {self.columns[name]: name for name in columns}
        of_parquet = [self.columns[name] for name in columns if self.lists.get(name) == LIST_SEPARATOR]
        files.check_types(self.source, [("data.side", column) for column in stored], list(stored), (), of_parquet)
        rows = files.columns_as_text(self.source, list(stored))
        return pl.DataFrame([rows[column].alias(name) for column, name in stored.items()])


def side_file(root: Path, name: str, key: str, of: str, own: str) -> SideFile:
    """The file `name` of `root` with a row an item or user. `own`: how the log calls its ids. UserError where it cannot be read."""
    path = named_file(root, name, key)
    if _is_attributes(path):
        return SideFile(key, of, Source(path, source_of(path).parts), {ATTRIBUTES: ATTRIBUTES}, "", {ATTRIBUTES: LIST_SEPARATOR})
    source = source_of(path)
    stored = files.columns_of(source)
    plain = {plain_name(column): column for column in stored}
    if len(plain) < len(stored):
        raise UserError("two columns have one name", where=path, given=", ".join(stored), remedy="rename one of them")
    known = (
        [one for one in plain if one == own]
        or [one for one in plain if _letters(one) in ID_NAMES[of]]
        or [one for one in plain if one == "id"]
    )
    if len(known) != 1:
        allowed = f"one column called {own}, as in the log, or {of}_id"
        raise UserError(f"no column of the {of}s", where=path, given=", ".join(plain), allowed=allowed, remedy="rename one")
    lists = dict.fromkeys(files.list_columns(source), LIST_SEPARATOR)
    lists |= {name: " " for name, column in plain.items() if column.endswith(":token_seq")}
    columns = {name: column for name, column in plain.items() if name != known[0]}
    return SideFile(key, of, source, columns, plain[known[0]], lists)


def _letters(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _is_attributes(path: Path) -> bool:
    """Whether a JSON file is one object of lists, and not an object a line."""
    if not path.name.lower().removesuffix(".gz").endswith(".json"):
        return False
    try:
        value = json.loads(text_of(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value) and all(isinstance(own, list) for own in value.values())
