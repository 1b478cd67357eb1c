"""An interaction file read once into the cache: sorted, its ids numbered, in the arrays of `Histories`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from recsys_lab.data import hashing
from recsys_lab.data.cache import digest, prepared
from recsys_lab.data.interactions.files import rows_of
from recsys_lab.data.interactions.format import Layout, events_of
from recsys_lab.data.interactions.guess import ITEM, OTHER, TIME, USER, pasted, swapped, without
from recsys_lab.data.interactions.histories import FEWEST_TO_HOLD_OUT, Histories, histories_of, order_of
from recsys_lab.data.interactions.side import by_number, categories_of
from recsys_lab.data.interactions.side_of_histories import Log, with_sides
from recsys_lab.data.interactions.side_wanted import Sides
from recsys_lab.data.interactions.times import KINDS as TIMES
from recsys_lab.data.interactions.times import NUMBERS, has_several_units, without_instant
from recsys_lab.data.parts import Source
from recsys_lab.data.separators import said_before
from recsys_lab.data.sources import source_identity
from recsys_lab.data.text import Reading
from recsys_lab.errors import UserError

#: Of the files with histories, and of how logs are read: those of another one are not read.
LAYOUT = 4
_PAIRS_TO_JUDGE_ORDER = 100
_FEWEST_TIES_TO_JUDGE = 20
_FEWEST_ITEMS_WITH_TIMES = 5
_MOST_UNSORTED = 0.8  # of ties, the share with the greater item later, or with the smaller one
_FEWEST_TO_JUDGE_ITEMS = 7
#: A user has events in sessions, an item as they come: of the usual gap between two events of one id, what is short and what is not.
_SHORT, _USUAL = 0.02, 0.2


def prepared_histories(
    source: Source, layout: Layout, on_bad_line: str, category: Path | None, sides: Sides, cache: Path
) -> tuple[Path, dict]:
    """The folder of the histories in a log, and its meta data. Raises UserError for a bad file."""
    options = {
        "kind": "interactions",
        "layout": _stored(layout),
        "on_bad_line": on_bad_line,
    }
    path, keys = source.path, [list(part.keys) for part in source.parts] if layout.keys else []
    options |= {"keys": keys} if keys else {}
    options |= {"sides": sides.plain()} if sides else {}
    sources = [*(source_identity(part.path) for part in source.parts), *([source_identity(category)] if category else [])]
    sources += [file.identity for file, _ in sides.files]

    def prepare(folder: Path) -> dict:
        reading = Reading()
        columns = [one.column for one in sides.log]
        blocks = [events_of(frame, layout, columns) for frame in rows_of(source, layout, on_bad_line, reading) if frame.height]
        if not blocks:
            raise UserError("no interactions", where=path, given="no line that can be read", allowed="one line or more")
        events = pl.concat(blocks, how="vertical_relaxed")
        read, ties = _read(events, layout, path, category)
        histories, said = with_sides(read, sides)
        items = read.items
        (folder / "items.txt").write_text("".join(f"{item}\n" for item in items), encoding="utf-8")
        meta = histories.save(folder)
        categories = None if histories.categories is None else digest(histories.categories.tolist())
        return meta | {
            "notes": [
                *_notes(histories, layout, ties),
                *source.notes("log"),
                *said,
                *_missing_times(events),
                *_copies(events),
                *reading.notes(),
            ],
            "sources": sources,
            "sha256": reading.sha256,
            "options": options,
            "fingerprint": digest([reading.sha256, options, categories, *(side.fingerprint for side in histories.sides)]),
        }

    return prepared(cache, "interactions", [sources, options, LAYOUT], prepare)


def _stored(layout: Layout) -> dict:
    """What tells one layout from another. Of text in one file, as it always was."""
    plain = {"names", "keys"} if layout.names is None and not layout.keys else set()
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(layout).items() if name not in plain}


def _read(frame: pl.DataFrame, layout: Layout, path: Path, category: Path | None) -> tuple[Log, int]:
    """The log as histories, and how many ties were broken by a hash."""
    users, user_of = _numbered(frame["user"])
    items, item_of = _numbered(frame["item"])
    if len(items) < 2:
        raise UserError("nothing to choose from", where=path, given="1 item", allowed="2 items or more")
    if layout.is_bare and len(items) > max(len(frame) / 2, _FEWEST_TO_JUDGE_ITEMS):
        columns = layout.columns
        raise UserError(
            f"most items would be there once: field {columns.index(ITEM) + 1} may be no item",
            where=path,
            given=f"{len(items):,} items in {len(frame):,} lines",
            allowed="at most one item in two lines, where no names say what the fields are",
            remedy=f"'{pasted(without(columns, columns.index(ITEM)))}'; or '{pasted(columns)}', if that is meant",
        )
    times = frame[TIME].to_numpy() if TIME in frame.columns else None
    if times is not None and len(times) > 1 and (times == times[0]).all():
        without_times = [OTHER if column == TIME else column for column in layout.columns]
        raise UserError(
            "all times are equal: they order nothing",
            where=path,
            given=f"column {layout.columns.index(TIME) + 1} of {len(times):,} lines",
            allowed="times that differ",
            remedy=f"'{pasted(without_times)}', if the lines stand in the order of time",
        )
    if times is not None:
        _refuse_odd_times(times, item_of, len(items), layout, path)
        if layout.is_bare:
            _refuse_swapped(user_of, item_of, times, layout, path)
    categories = categories_of(category, items) if category else None
    sizes, unit = (len(users), len(items)), TIMES[layout.times].unit
    if times is None:
        histories = histories_of(user_of, item_of + 1, None, *sizes, categories)
        _refuse_sorted_by_item(histories, path)
        if layout.guessed:
            _refuse_item_by_item(user_of, item_of, layout, path)
        return Log(histories, frame, order_of(user_of, None, None), items, users), 0
    ties = _ties_sorted_by_item(user_of, item_of, times, items)
    drawn = hashing.bits(hashing.key("ties", 1), np.arange(len(times))) if ties else None
    histories = histories_of(user_of, item_of + 1, times, *sizes, categories, unit, drawn)
    return Log(histories, frame, order_of(user_of, times, drawn), items, users), ties


def _refuse_odd_times(times: np.ndarray, items: np.ndarray, n_items: int, layout: Layout, path: Path) -> None:
    """UserError where times are in several units, or belong to the items: each item has one, on all of its lines."""
    if layout.times == NUMBERS and has_several_units(times):
        given = f"{times[times >= 0].min():.0f} and {times.max():.0f}"
        raise UserError(
            "some times are seconds, others milliseconds or finer ones", where=path, given=given, remedy="write all in one unit"
        )
    pairs = len(np.unique(np.column_stack([items, times]), axis=0))
    if layout.guessed and pairs == n_items >= _FEWEST_ITEMS_WITH_TIMES and 2 * n_items < len(items):
        without_times = tuple(OTHER if column == TIME else column for column in layout.columns)
        raise UserError(
            "each item has one time on all of its lines: it may be the item's, and not the event's",
            where=path,
            given=f"column {layout.columns.index(TIME) + 1}, {n_items:,} items in {len(items):,} lines",
            remedy=f"'{pasted(without_times)}', if the lines stand in the order of time; or '{pasted(layout.columns)}', if that is meant",
        )


def _refuse_swapped(users: np.ndarray, items: np.ndarray, times: np.ndarray, layout: Layout, path: Path) -> None:
    """UserError where what is taken for items has its events in sessions, as users have, and what is taken for users has not."""
    if (of_items := _usual_gap(items, times)) <= _SHORT and (of_users := _usual_gap(users, times)) >= _USUAL:
        raise UserError(
            f"field {layout.columns.index(ITEM) + 1} may be the user: its events come in sessions, those of field "
            f"{layout.columns.index(USER) + 1} do not",
            where=path,
            given=f"half of all gaps are below {of_items:.2g} and {of_users:.2g} of what evenly spread events have",
            remedy=f"'{pasted(swapped(layout.columns))}'; or '{pasted(layout.columns)}', if that is meant",
        )


def _usual_gap(ids: np.ndarray, times: np.ndarray) -> float:
    """Of the gaps between two events of one id the median, where 1 is what its events had if they were spread evenly. NaN of few gaps."""
    order = np.lexsort((times, ids))
    own, gaps = ids[order][1:], np.diff(times[order].astype(np.float64))
    inside = np.diff(ids[order]) == 0
    if inside.sum() < _PAIRS_TO_JUDGE_ORDER:
        return float("nan")
    return float(np.median(gaps[inside] * np.bincount(ids)[own[inside]]) / np.ptp(times))


def _refuse_item_by_item(users: np.ndarray, items: np.ndarray, layout: Layout, path: Path) -> None:
    """UserError where a log without times has all lines of an item together: nothing is left of the order of a user's events."""
    lines, changes = len(items), [np.count_nonzero(np.diff(ids)) + 1 for ids in (users, items)]
    is_sorted = changes[1] == len(np.unique(items)) and 2 * changes[1] <= lines and changes[0] > 2 * len(np.unique(users))
    if is_sorted and lines >= _PAIRS_TO_JUDGE_ORDER:
        remedy = f"give them times; or '{pasted(layout.columns)}', if the lines stand in the order of time"
        if layout.is_bare:
            remedy = f"'{pasted(swapped(layout.columns))}', if the items stand before the users; or {remedy}"
        raise UserError(
            "these interactions have no times and stand item by item: the order of events is lost",
            where=path,
            given=f"{lines:,} lines, in which each of {changes[1]:,} items stands once",
            remedy=remedy,
        )


def _ties_sorted_by_item(users: np.ndarray, items: np.ndarray, times: np.ndarray, names: list[str]) -> int:
    """How many pairs of a user's lines with equal times there are, if they stand sorted by item. 0 where they do not, or are few.

    Sorted by the ids `names`, as numbers or as words; or as items first stand in the lines of other users, where a file goes item by item.
    """
    by_word = np.empty(len(names), np.int64)
    by_word[np.argsort(np.array(names, dtype=object))] = np.arange(len(names))
    first = np.unique(items, return_index=True)[1]
    order = np.lexsort((times, users))
    users_of_first, users, items, times = users[first], users[order], items[order], times[order]
    tied = (np.diff(users) == 0) & (np.diff(times) == 0) & (np.diff(items) != 0)
    pairs = np.stack([items[:-1][tied], items[1:][tied]])
    others = (users_of_first[pairs] != users[1:][tied]).all(axis=0)
    for rank, judged in ((np.arange(len(names)), pairs), (by_word, pairs), (first, pairs[:, others])):
        if judged.shape[1] >= _FEWEST_TIES_TO_JUDGE and abs((np.diff(rank[judged], axis=0) > 0).mean() - 0.5) > _MOST_UNSORTED - 0.5:
            return pairs.shape[1]
    return 0


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


def _missing_times(events: pl.DataFrame) -> list[str]:
    """A note, or none, of times that may be missing."""
    missing = without_instant(events[TIME].to_numpy()) if TIME in events.columns else 0
    return [f"{missing:,} times are 0 or less, beside times since 1979: if they are missing, their lines come first"] if missing else []


def _copies(events: pl.DataFrame) -> list[str]:
    """A note, or none, of lines that say again what another says."""
    copies = events.height - events.n_unique([USER, ITEM, TIME]) if TIME in events.columns else 0
    if not copies:
        return []
    return [f"{copies:,} interactions have the user, the item and the time of another: if they are copies, they give the next item away"]


def _notes(histories: Histories, layout: Layout, ties_drawn: int) -> list[str]:
    """What the user should know."""
    kind = "a line a user" if layout.kind == "sequences" else f"a line an interaction: {', '.join(layout.columns)}"
    notes = [f"{histories.users:,} users, {histories.items:,} items, {len(histories.ids):,} interactions ({kind})"]
    notes += said_before(layout.before)
    if layout.guessed:
        notes.append(layout.guessed)
    if histories.gaps is None:
        notes.append("no times: the order of the file is the order of events")
    elif ties_drawn:
        notes.append(
            f"{ties_drawn:,} interactions have the time of the one before and stand sorted by item, which gives the next item away: "
            "the order of equal times is drawn by a hash"
        )
    elif ties := int((histories.gaps == 1).sum()):
        notes.append(
            f"{ties:,} interactions came less than one unit of time after the one before: of equal times the earlier line is first"
        )
    if few := int((histories.lengths < FEWEST_TO_HOLD_OUT).sum()):
        notes.append(f"{few:,} users with fewer than {FEWEST_TO_HOLD_OUT} interactions are in train alone")
    if single := int((histories.lengths == 1).sum()):
        notes.append(f"{single:,} of them have one interaction, which no item comes before or after: nothing is learnt from it")
    return [*notes, *_of_new_items(histories)]


def _of_new_items(histories: Histories) -> list[str]:
    """A note, or none, of items that are in no train part."""
    held_out = histories.held_out()
    position = np.arange(len(histories.ids)) - np.repeat(histories.first[:-1], histories.lengths)
    known = np.zeros(histories.items + 1, bool)
    known[histories.ids[position < np.repeat(histories.train_lengths, histories.lengths)]] = True
    new = histories.items - int(known[1:].sum())
    if not new or not len(held_out):
        return []
    users = [int((~known[histories.ids[histories.first[held_out + 1] - back]]).sum()) for back in (1, 2)]
    return [
        f"{new:,} of {histories.items:,} items are in no train part. They are the test item of {users[0]:,} of {len(held_out):,} users and "
        f"the validation item of {users[1]:,}: no history trains their vectors, so a model of ids alone finds them by chance at most"
    ]
