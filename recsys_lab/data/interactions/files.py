"""The files of a log: which they are, and their rows as text, whether they are stored as text, as JSON lines or as Parquet."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from recsys_lab.base.files import path_of, what_is
from recsys_lab.data.interactions.format import LOOK_LINES, Layout, checks_of, column_names, text_format
from recsys_lab.data.interactions.named import parquet_rows
from recsys_lab.data.parquet import is_parquet
from recsys_lab.data.parts import Source, is_part, is_table, of_parts, parts_in, source_of
from recsys_lab.data.separators import lines_before
from recsys_lab.data.sources import named_file, only_file
from recsys_lab.data.text import Reading, TextFormat, checked, first_lines, read_text
from recsys_lab.errors import UserError

SUFFIXES = (".inter", ".txt", ".csv", ".tsv", ".dat", ".data", ".rating", ".parquet", ".jsonl", ".ndjson")
#: Where there is nothing else: items' attributes are stored so too.
_LAST = (".json",)


def log_in(root: Path, name: str | None, beside: Collection[Path] = ()) -> Source:
    """The log `name` of `root`, a file or a folder of part files. Without a name the only file there, or its part files.

    `beside`: files of `root` that are no logs.

    Part files are those that are named so, and those in folders that are called as a value of a column is. UserError where there is no log,
    or more than one.
    """
    if name:
        path = root / path_of(name, "data.file")
        return source_of(path if path.is_dir() else named_file(root, name, "data.file"), None, SUFFIXES)
    files = [path for path in root.iterdir() if is_table(path, SUFFIXES) and what_is(path) is None and path not in beside]
    if beside and len(files) == 1:
        return source_of(files[0])
    parts = [] if len(files) == 1 else [part for part in parts_in(root, SUFFIXES) if part.keys or is_part(part.path)]
    if not parts or not {part.path for part in parts}.issuperset(files):
        if len(files) > 1:
            given = ", ".join(sorted(path.name for path in files))
            remedy = "name it: data.file=FILE; or data.file=. for all of them, if they are one log"
            raise UserError("several files it could be", where=root, given=given, remedy=remedy)
        return source_of(only_file(root, None, SUFFIXES if files else (*SUFFIXES, *_LAST), "data.file"))
    folders = sorted({path.parts[0] for part in parts if (path := part.path.relative_to(root)).parts[1:] and "=" not in path.parts[0]})
    if len(folders) > 1 or folders and files:
        given = ", ".join(folders)
        raise UserError("part files in several folders", where=root, given=given, remedy="name one of them: data.file=FOLDER")
    return of_parts(root, parts, None, SUFFIXES)


def rows_of(source: Source, layout: Layout, on_bad_line: str, reading: Reading) -> Iterator[pl.DataFrame]:
    """The rows of all parts in order, as frames of strings named by `column_names`. Adds to `reading`. UserError for a bad row."""
    of_file = text_format(layout)
    of_path = column_names(layout)[len(layout.columns) - layout.keys :]
    for part in source.parts:
        values = {name: value for name, (_, value) in zip(of_path, part.keys)}
        one = TextFormat(of_path, None, checks=checks_of(layout, of_path))
        _, bad = checked(pl.DataFrame(values, schema=dict.fromkeys(of_path, pl.String)), None, one, {})
        if bad:
            raise replace(bad[0], remedy="rename the folder").at(f"{part.path}")
        if is_parquet(part.path):
            frames = _of_parquet(part.path, of_file, on_bad_line, reading)
        else:
            before = of_file.before if len(source.parts) == 1 else lines_before(first_lines(part.path, LOOK_LINES), part.path)[0]
            frames = read_text(part.path, replace(of_file, before=before), on_bad_line, reading)
        for frame in frames:
            yield frame.with_columns(pl.lit(value).alias(name) for name, value in values.items())


def _of_parquet(path: Path, of_file: TextFormat, on_bad_line: str, reading: Reading) -> Iterator[pl.DataFrame]:
    rows = parquet_rows(path, dict(zip(of_file.names, of_file.keys or ())))
    frame, bad = checked(rows, None, of_file, {})
    reading.refuse(bad, path, ", row ", 1, on_bad_line)
    with path.open("rb") as file:
        reading.done(hashlib.file_digest(file, "sha256").hexdigest())
    yield frame
