"""An interaction file read once into the cache: sorted, its ids numbered, in the arrays of `Histories`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from recsys_lab.data.cache import digest, prepared
from recsys_lab.data.interactions.format import TIME, Layout, events_of, text_format
from recsys_lab.data.interactions.histories import FEWEST_TO_HOLD_OUT, Histories, histories_of
from recsys_lab.data.interactions.side import by_number, categories_of
from recsys_lab.data.sources import source_identity
from recsys_lab.data.text import Reading, read_text
from recsys_lab.errors import UserError

_PAIRS_TO_JUDGE_ORDER = 100


def prepared_histories(path: Path, layout: Layout, on_bad_line: str, category: Path | None, cache: Path) -> tuple[Path, dict]:
    """The folder of the histories in `path`, and its meta data. Raises UserError for a bad file."""
    options = {"kind": "interactions", "layout": vars(layout) | {"columns": list(layout.columns)}, "on_bad_line": on_bad_line}
    sources = [source_identity(path), *([source_identity(category)] if category else [])]

    def prepare(folder: Path) -> dict:
        reading = Reading()
        blocks = [events_of(frame, layout) for frame in read_text(path, text_format(layout), on_bad_line, reading)]
        if not blocks:
            raise UserError("no interactions", where=path, given="no line that can be read", allowed="one line or more")
        histories, items = _histories(pl.concat(blocks), path, category)
        (folder / "items.txt").write_text("".join(f"{item}\n" for item in items), encoding="utf-8")
        meta = histories.save(folder)
        categories = None if histories.categories is None else digest(histories.categories.tolist())
        return meta | {
            "notes": [*_notes(histories, layout), *reading.notes()],
            "sources": sources,
            "sha256": reading.sha256,
            "options": options,
            "fingerprint": digest([reading.sha256, options, categories]),
        }

    return prepared(cache, "interactions", [sources, options], prepare)


def _histories(frame: pl.DataFrame, path: Path, category: Path | None) -> tuple[Histories, list[str]]:
    """The histories, and the ids of item rows 1, 2, ... as the file writes them."""
    users, user_of = _numbered(frame["user"])
    items, item_of = _numbered(frame["item"])
    if len(items) < 2:
        raise UserError("nothing to choose from", where=path, given="1 item", allowed="2 items or more")
    times = frame[TIME].to_numpy() if TIME in frame.columns else None
    categories = categories_of(category, items) if category else None
    histories = histories_of(user_of, item_of + 1, times, len(users), len(items), categories)
    if times is None:
        _refuse_sorted_by_item(histories, path)
    return histories, items


def _numbered(ids: pl.Series) -> tuple[list[str], np.ndarray]:
    """The distinct ids in rising order (as numbers, where all are digits), and each id's position in them, int64 [N]."""
    distinct = ids.unique().to_list()
    digits = all(word.isascii() and word.isdigit() for word in distinct)
    names = sorted(distinct, key=by_number if digits else None)
    return names, ids.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)


def _refuse_sorted_by_item(histories: Histories, path: Path) -> None:
    """UserError where the order of a file without times says nothing: every user's items rise."""
    rises = np.diff(histories.ids.astype(np.int64)) > 0
    inside = np.ones(len(rises), bool)
    inside[histories.first[1:-1] - 1] = False
    if inside.sum() >= _PAIRS_TO_JUDGE_ORDER and rises[inside].all():
        raise UserError(
            "these interactions have no times and are sorted by item: the order of events is lost",
            where=path,
            given=f"{inside.sum():,} pairs of a user's interactions, the later one of each with the greater id",
            allowed="a column with times, or lines in the order of time",
        )


def _notes(histories: Histories, layout: Layout) -> list[str]:
    """What the user should know."""
    kind = "a line a user" if layout.kind == "sequences" else f"a line an interaction: {', '.join(layout.columns)}"
    notes = [f"{histories.users:,} users, {histories.items:,} items, {len(histories.ids):,} interactions ({kind})"]
    if layout.guessed:
        notes.append(layout.guessed)
    if histories.gaps is None:
        notes.append("no times: the order of the file is the order of events")
    elif ties := int((histories.gaps == 1).sum()):
        notes.append(
            f"{ties:,} interactions came less than one unit of time after the one before: of equal times the earlier line is first"
        )
    if few := int((histories.lengths < FEWEST_TO_HOLD_OUT).sum()):
        notes.append(f"{few:,} users with fewer than {FEWEST_TO_HOLD_OUT} interactions are in train alone")
    return notes
