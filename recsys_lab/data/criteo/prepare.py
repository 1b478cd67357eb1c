"""Prepares Criteo's files.

Each is read once into columns of raw 32-bit values. Then tables are made from the train rows, and values are replaced in place by rows of
tables. Memory is constant, except for the distinct values of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from recsys_lab.base.progress import Progress
from recsys_lab.data.cache import digest, prepared
from recsys_lab.data.columns import count_rows, write_columns, write_row_counts
from recsys_lab.data.criteo.format import CRITEO, VALUE_NAMES, VALUES, columns_of
from recsys_lab.data.criteo.tables import HashedTables, Tables, ValueCounter, Vocabulary
from recsys_lab.data.sources import source_identity
from recsys_lab.data.text import Columns, Reading, read_text
from recsys_lab.tables import AccessStatistics, measured_access

_BLOCK_ROWS = 1 << 17


@dataclass(frozen=True)
class Encoding:
    """How values become rows of tables: hashed into `rows`, or, where that is None, by a vocabulary."""

    rows: tuple[int, ...] | None
    min_count: int
    validation_share: float  # of the rows that are held out at the end; 0 where validation has a file of its own


def prepared_train(files: Sequence[Path], encoding: Encoding, on_bad_line: str, cache: Path) -> tuple[Path, dict]:
    """The folder of the train files' columns, held-out rows included, and its meta data. Raises UserError for a bad file."""
    options = {"kind": "criteo", "on_bad_line": on_bad_line, **asdict(encoding)}

    def prepare(folder: Path) -> dict:
        meta = _read(files, folder, on_bad_line)
        held_out = max(1, round(meta["rows"] * encoding.validation_share)) if encoding.validation_share and meta["rows"] else 0
        train_rows = meta["rows"] - held_out
        tables = HashedTables(encoding.rows) if encoding.rows else _vocabulary(folder, train_rows, encoding.min_count)
        counts = [np.zeros(rows, np.int64) for rows in tables.rows]
        _encode(folder, meta["rows"], tables, counts, train_rows)
        write_row_counts(folder, counts)
        detail = f"{train_rows:,} samples of {files[0].name}" + (f" to {files[-1].name}" if len(files) > 1 else "")
        access = AccessStatistics({name: measured_access(name, c, train_rows, detail) for name, c in zip(VALUE_NAMES, counts)})
        return meta | {
            "train_rows": train_rows,
            "table_rows": list(tables.rows),
            "access": access.to_json(),
            "options": options,
            "fingerprint": digest([meta["sha256"], options]),
        }

    return prepared(cache, "criteo", [[source_identity(f) for f in files], options], prepare)


def prepared_other(path: Path, train: Path, train_meta: dict, on_bad_line: str, cache: Path) -> tuple[Path, dict]:
    """The folder of another file's columns, with the tables of the `train` folder."""
    options = {"kind": "criteo", "on_bad_line": on_bad_line, "tables": train_meta["fingerprint"]}

    def prepare(folder: Path) -> dict:
        meta = _read([path], folder, on_bad_line)
        hashed = train_meta["options"]["rows"]
        counts = [np.zeros(rows, np.int64) for rows in train_meta["table_rows"]]
        _encode(
            folder, meta["rows"], HashedTables(tuple(hashed)) if hashed else _load(train, train_meta["table_rows"]), counts, meta["rows"]
        )
        unknown = {} if hashed else {name: int(count[Vocabulary.RARE]) for name, count in zip(VALUE_NAMES, counts)}
        return meta | {"options": options, "fingerprint": digest([meta["sha256"], options]), "unknown": unknown}

    return prepared(cache, "criteo", [source_identity(path), options, "unknown values"], prepare)


def _read(files: Sequence[Path], folder: Path, on_bad_line: str) -> dict:
    """Writes the raw columns of all files, one after another."""
    readings = [Reading() for _ in files]

    def blocks() -> Iterator[Columns]:
        for path, reading in zip(files, readings):
            yield from map(columns_of, read_text(path, CRITEO, on_bad_line, reading))

    rows = write_columns(folder, blocks())
    return {
        "rows": rows,
        "skipped": sum(r.skipped for r in readings),
        "notes": [note for r in readings for note in r.notes()],
        "sources": [source_identity(path) for path in files],
        "sha256": [r.sha256 for r in readings],
    }


def _raw_blocks(folder: Path, rows: int, what: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """First row, values [n, 26] and missing mask [n] of each block."""
    with (folder / "ids.bin").open("rb") as ids, (folder / "missing.bin").open("rb") as missing, Progress(rows, what, "rows") as bar:
        for first in range(0, rows, _BLOCK_ROWS):
            count = min(_BLOCK_ROWS, rows - first)
            yield (
                first,
                np.frombuffer(ids.read(count * VALUES * 4), np.uint32).reshape(count, VALUES),
                np.frombuffer(missing.read(count * 4), np.uint32),
            )
            bar.update(count)


def _encode(folder: Path, rows: int, tables: Tables, counts: Sequence[np.ndarray] = (), counted_rows: int = 0) -> None:
    """Rows of tables in place of raw values: both are 4 bytes. Counts the look-ups of the first `counted_rows`. Drops the missing mask."""
    with (folder / "ids.bin").open("r+b") as out:  # written, not mapped: a full disk is then an error, not a crash
        for first, values, missing in _raw_blocks(folder, rows, "finding rows of tables"):
            ids = tables.encode(values, missing)
            out.write(np.ascontiguousarray(ids))
            if counts:
                count_rows(counts, ids[: max(0, counted_rows - first)])
    (folder / "missing.bin").unlink()


def _vocabulary(folder: Path, train_rows: int, min_count: int) -> Vocabulary:
    """Built on the train rows, and kept in vocabulary.bin."""
    counter = ValueCounter(VALUES)
    for _, values, missing in _raw_blocks(folder, train_rows, "counting values"):
        counter.add(values, missing)
    vocabulary = counter.vocabulary(min_count)
    with (folder / "vocabulary.bin").open("wb") as file:
        for known, value_rows in zip(vocabulary.values, vocabulary.value_rows):
            file.write(np.ascontiguousarray(known))
            file.write(np.ascontiguousarray(value_rows))
    return vocabulary


def _load(train: Path, table_rows: Sequence[int]) -> Vocabulary:
    values, value_rows = [], []
    with (train / "vocabulary.bin").open("rb") as file:
        for rows in table_rows:
            known = rows - Vocabulary.OWN_ROWS
            values.append(np.frombuffer(file.read(known * 4), np.uint32))
            value_rows.append(np.frombuffer(file.read(known * 4), np.int32))
    return Vocabulary(tuple(values), tuple(value_rows))
