"""Yambda's Parquet files: a row an event, read by Polars some million rows at a time, put user by user through files beside the cache.

Users may stand in any order, and each one's events anywhere, in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from recsys_lab.base.progress import Progress
from recsys_lab.data.yambda.store import HALF, LIKE, ORGANIC, SKIP, UserEvents
from recsys_lab.errors import UserError

EVENT_TYPES = ("listen", "like", "dislike", "unlike", "undislike")
#: Of a file of events, and what each column is: a whole number, or the kind of event.
COLUMNS = ("uid", "timestamp", "item_id", "is_organic", "played_ratio_pct", "event_type")
MAPPINGS = {"artist_id": "artist_item_mapping.parquet", "album_id": "album_item_mapping.parquet"}
_EVENT = np.dtype([("user", np.int64), ("time", np.int32), ("item", np.int32), ("kind", np.uint8)])
#: Rows that are in memory at once, of a file and of a part.
READ_ROWS, PART_ROWS = 1 << 22, 1 << 25


@dataclass(frozen=True)
class Files:
    """`events`, and for the tables of artists and albums the file that maps items to them."""

    events: Path
    mappings: tuple[tuple[Path, str], ...]

    @property
    def all(self) -> tuple[Path, ...]:
        return (self.events, *(path for path, _ in self.mappings))


def files_of(root: Path, size: str) -> Files:
    """Those of `size` in `root`, as they are published or all in one folder. UserError where one is missing."""
    inner = f"flat/{size}/multi_event.parquet"
    events = next((root / name for name in (inner, "multi_event.parquet") if (root / name).is_file()), None)
    mappings = tuple((root / name, table) for table, name in MAPPINGS.items())
    for name, there in ((inner, events is not None), *((path.name, path.is_file()) for path, _ in mappings)):
        if not there:
            raise UserError("a file is missing", where=root, given=f"no {name}", allowed="Yambda as it is published")
    assert events is not None
    return Files(events, mappings)


def mapping_of(path: Path, table: str, items: int, rows: int) -> np.ndarray:
    """int32 [items]: the lowest artist or album of each item; 0: none."""
    frame = _scan(path, ("item_id", table)).group_by("item_id").agg(pl.col(table).min()).collect()
    own, other = (frame[name].cast(pl.Int64).to_numpy() for name in ("item_id", table))
    _check_range(path, "item_id", own, items)
    _check_range(path, table, other, rows)
    found = np.zeros(items, np.int32)
    found[own] = other
    return found


def user_events(path: Path, items: int, users: int, folder: Path) -> Iterator[UserEvents]:
    """All events, some users at a time in rising order.

    Args:
        path: a Parquet file with `COLUMNS`.
        items, users: rows of their tables.
        folder: where events are put aside meanwhile, user by user in parts of about `PART_ROWS`.

    Raises:
        UserError: another schema; a missing value; an event type that does not exist; times of a user that run backwards; an id outside its
            table.
    """
    scanned = _scan(path, COLUMNS)
    rows = int(scanned.select(pl.len()).collect().item())
    if not rows:
        raise UserError("no events", where=path, given="0 rows", allowed="1 row or more")
    parts = -(-rows // PART_ROWS)
    paths = [folder / f"part_{part}.bin" for part in range(parts)]
    with Progress(rows, f"reading {path.name}", "events") as bar:
        for start in range(0, rows, READ_ROWS):
            events = _events(scanned.slice(start, READ_ROWS).collect(), path, start, items, users)
            of_part = events["user"] * parts // users
            for part in np.unique(of_part):
                with paths[part].open("ab") as file:
                    file.write(events[of_part == part].data)
            bar.update(len(events))
    for part in paths:
        if part.is_file():
            yield _by_user(np.fromfile(part, _EVENT), path)
            part.unlink()


def _scan(path: Path, columns: tuple[str, ...]) -> pl.LazyFrame:
    """The columns of a file. UserError where that is no Parquet, lacks one, or has text for numbers."""
    try:
        schema = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(
            "no Parquet file", where=path, given=str(error).splitlines()[0][:100], allowed="Yambda as it is published"
        ) from None
    for name in columns:
        if name not in schema:
            given = ", ".join(schema)
            raise UserError("another schema", where=path, given=f"columns {given}", allowed=f"{', '.join(columns)} among them")
        number, kind = name != "event_type", schema[name]
        if number and not (kind.is_integer() or kind == pl.Boolean) or not number and kind not in (pl.String, pl.Categorical, pl.Enum):
            allowed = "whole numbers" if number else "text"
            raise UserError("another schema", where=path, given=f"column {name} of {kind}", allowed=allowed)
    return pl.scan_parquet(path).select(columns)


def _events(frame: pl.DataFrame, path: Path, start: int, items: int, users: int) -> np.ndarray:
    """`_EVENT` [n] of rows of the file from `start` on."""
    kinds = frame["event_type"].cast(pl.String)
    known = kinds.is_in(EVENT_TYPES)
    if not known.all():
        row = int((~known.fill_null(False)).arg_max() or 0)
        given = f"{kinds[row]}, in row {start + row + 1:,}"
        raise UserError("no such event type", where=f"{path}: event_type", given=given, allowed=", ".join(EVENT_TYPES))
    listens = kinds == "listen"
    ratio = frame["played_ratio_pct"]
    for name, missing in (*((name, frame[name].is_null()) for name in COLUMNS[:4]), ("played_ratio_pct", ratio.is_null() & listens)):
        if missing.any():
            given = f"nothing in row {start + int(missing.arg_max() or 0) + 1:,}"
            raise UserError("a value is missing", where=f"{path}: {name}", given=given, allowed="a whole number")
    columns = {name: frame[name].cast(pl.Int64).to_numpy() for name in ("uid", "timestamp", "item_id")}
    _check_range(path, "uid", columns["uid"], users)
    _check_range(path, "item_id", columns["item_id"], items)
    _check_range(path, "timestamp", columns["timestamp"], 2**31)
    half = (ratio.cast(pl.Int64).fill_null(0) >= 50).to_numpy()
    of_listen = np.where(half, HALF, SKIP)
    kind = np.where(listens.to_numpy(), of_listen, np.where((kinds == "like").to_numpy(), LIKE, 0))
    events = np.empty(len(frame), _EVENT)
    events["user"], events["time"], events["item"] = columns["uid"], columns["timestamp"], columns["item_id"]
    events["kind"] = kind + ORGANIC * frame["is_organic"].cast(pl.Int64).to_numpy()
    return events


def _by_user(events: np.ndarray, path: Path) -> UserEvents:
    """Sorted by user. Each one's events stay in the order of the file, which must be that of time."""
    events = events[np.argsort(events["user"], kind="stable")]
    same, steps = np.diff(events["user"]) == 0, np.diff(events["time"].astype(np.int64))
    if (back := same & (steps < 0)).any():
        at = int(back.argmax())
        given = f"second {events['time'][at + 1]:,} after second {events['time'][at]:,} of user {events['user'][at]}"
        raise UserError("times run backwards", where=f"{path}: timestamp", given=given, allowed="each user's events in the order of time")
    users, counts = np.unique(events["user"], return_counts=True)
    return UserEvents(users, counts, events["time"], events["item"], events["kind"])


def _check_range(path: Path, name: str, values: np.ndarray, rows: int) -> None:
    """UserError for an id that its table has no row for."""
    wrong = (values < 0) | (values >= rows)
    if wrong.any():
        remedy = None if name == "timestamp" else f"a larger data.rows.{name}"
        given, allowed = int(values[wrong.argmax()]), f"0 to {rows - 1:,}"
        raise UserError("out of range", where=f"{path}: {name}", given=given, allowed=allowed, remedy=remedy)
