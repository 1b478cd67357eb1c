"""What the fields of a log are by their values, and refusals of guesses that the values contradict."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from recsys_lab.data.interactions.times import (
    CALENDAR,
    are_clocks,
    are_dates,
    are_days,
    are_fractions,
    are_instants,
    are_numbers,
    are_of_two_orders,
    are_years_last,
    kind_of_times,
)
from recsys_lab.data.protocol import SIDE
from recsys_lab.data.text import shorten
from recsys_lab.errors import UserError

USER, ITEM, RATING, TIME, OTHER = ("user", "item", "rating", "time", "other")
ELSE = "else: data.columns"
MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "\\N", "<NA>"}
#: Ids that say what they are: of an item and a user.
_TELLING = (
    (r"B[0-9A-Z]{9}", r"A[0-9A-Z]{9,27}"),  # Amazon's
    (r"(?i)(?!u)[a-z_]+[_:-]?\d+", r"(?i)(u|user|usr|customer|cust|member|visitor|reader|client|player|account)[_:-]?\d+"),
)
_LIST = re.compile(r"\[.*\]|[^|]+(\|[^|]+)+")
_WRITE = "write them so"
_FEWEST_TO_JUDGE = 20  # lines of which several of one user are no sequences
_FEWEST_TO_TELL = 5  # rows beside which a line without digits is a header
_WHOLE_SECONDS = re.compile(r"[0-9]{9,13}(\.[0-9]+)?")  # from 1973 on, in seconds or milliseconds
_MOST = 0.9


def bare_columns(rows: Sequence[Sequence[str]], path: Path) -> tuple[str, ...]:
    """What each field is in a log without a header. `rows` have equally many. UserError where the values do not say it."""
    whole = [list(field) for field in zip(*rows)]
    known = [place for place, values in enumerate(whole) if not MISSING.issuperset(values)]
    fields = [whole[place] for place in known]
    dates = [place for place, values in enumerate(fields) if kind_of_times(values) in CALENDAR]
    times = dates or [place for place in range(2, len(fields)) if _are_times(fields[place])]
    if len(fields) not in (2, 3, 4) or len(times) > 1 or dates and len(fields) == 2:
        raise unclear(whole, path)
    a_line_a_user = len(fields) > 2 and len(set(fields[0])) == len(rows) > 1
    ids_like_times = not dates and any(are_instants(values) for place, values in enumerate(fields) if place not in times)
    if a_line_a_user and (not times or ids_like_times):
        raise unclear(whole, path)
    columns: tuple[str, ...] = (USER, ITEM, RATING, TIME)[: len(fields)]
    if times and times != [3]:
        columns = _with_time_at(times[0], len(fields))
    elif len(fields) == 4 and not times and not _is_clock(fields[3], fields[2]):
        raise unclear(whole, path)
    if RATING in columns and not _are_ratings(fields[2]):
        raise unclear(whole, path)
    of_place = dict(zip(known, columns))
    columns = tuple(of_place.get(place, OTHER) for place in range(len(whole)))
    _refuse_swapped(columns, whole, path)
    refuse_contradicted(columns, [f"field {place}" for place in range(1, len(whole) + 1)], rows, path, bare=True)
    return columns


def _refuse_swapped(columns: tuple[str, ...], fields: Sequence[Sequence[str]], path: Path) -> None:
    """UserError where the items stand before the users, and the ids say what they are."""
    first, second = (fields[columns.index(column)] for column in (USER, ITEM))
    for item, user in _TELLING:
        if min(sum(bool(re.fullmatch(form, cell)) for cell in own) for form, own in ((item, first), (user, second))) >= _MOST * len(first):
            given, remedy = f"{first[0]}, {second[0]}", f"'{pasted(swapped(columns))}'"
            raise UserError("the items stand before the users, as their ids say", where=path, given=given, remedy=remedy)


def swapped(columns: Sequence[str]) -> tuple[str, ...]:
    """`columns` with the user where the item was, and the item where the user was."""
    return tuple({USER: ITEM, ITEM: USER}.get(column, column) for column in columns)


def _are_ratings(values: Sequence[str]) -> bool:
    """Whether `values` are numbers, and not nearly as many as lines, as times are."""
    return are_numbers(values) and (len(values) < _FEWEST_TO_JUDGE or 2 * len(set(values)) <= len(values))


def _is_clock(values: Sequence[str], ratings: Sequence[str]) -> bool:
    """Whether `values` may be times of a clock of its own: numbers, of which there are more than ratings."""
    return kind_of_times(values) is not None and len(set(values)) > len(set(ratings))


def looks_like_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line has words where the rows have numbers or times; of ids with letters, whether it alone has no digits."""
    if not rows or any(cell in MISSING for cell in first):
        return False
    fields = [list(field) for field in zip(*rows)]
    told = [kind_of_times(values) is not None or are_numbers(values) for values in fields]
    if any(told):
        return all(kind_of_times([cell]) is None and not are_numbers([cell]) for cell, is_told in zip(first, told) if is_told)
    digits = [sum(any(sign.isdigit() for sign in cell) for cell in values) >= _MOST * len(values) for values in fields]
    return (
        len(rows) >= _FEWEST_TO_TELL and any(digits) and not any(sign.isdigit() for cell, has in zip(first, digits) if has for sign in cell)
    )


def said_header(first: Sequence[str]) -> str:
    return f"the first line is taken for a header: {', '.join(first)}"


def proposed(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """What the fields may be: the first that are no time, number with a fraction or constant are user and item."""
    fields = [list(field) for field in zip(*rows)]
    time = next((place for place, values in enumerate(fields) if kind_of_times(values) in CALENDAR), None)
    if time is None:
        time = next((place for place in reversed(range(len(fields))) if _are_times(fields[place])), None)
    ids = [place for place, values in enumerate(fields) if place != time and not are_fractions(values) and len(set(values)) > 1]
    ids = [*ids, *(place for place in range(len(fields)) if place != time and place not in ids)][:2]
    names = dict(zip(sorted(ids), (USER, ITEM))) | ({} if time is None else {time: TIME})
    return tuple(names.get(place, OTHER) for place in range(len(fields)))


def refuse_contradicted(
    columns: tuple[str, ...],
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    path: Path,
    *,
    bare: bool = False,
    timed: Collection[int] = (),
) -> None:
    """UserError where a user or an item is a time or a price, or where a field of no name that says so holds the times.

    `names` are those of the fields, for messages. `bare`: no header has named them. `timed`: fields whose name says that they are times.
    """
    fields = [list(field) for field in zip(*rows)]
    if not fields:
        return
    _refuse_lists(fields[columns.index(ITEM)], names[columns.index(ITEM)], path)
    others = TIME in columns and _are_times(fields[columns.index(TIME)])
    for place, column in enumerate(columns):
        if column in (USER, ITEM):
            in_digits = bare and (are_years_last(fields[place]) or not others and are_instants(fields[place]))
            is_time = are_dates(fields[place]) or in_digits
            if is_time or are_fractions(fields[place]):
                right = _with_time_at(place, len(columns)) if is_time else without(columns, place)
                raise _contradicted(
                    f"the {column} would be a {'time' if is_time else 'price'}", names[place], fields[place], columns, right, path
                )
        elif column == OTHER and not others and place not in timed and (are_dates(fields[place]) or are_instants(fields[place])):
            right = tuple(TIME if other == place else OTHER if old == TIME else old for other, old in enumerate(columns))
            what = "another column than the time holds times" if TIME in columns else "a column without the name of a time holds times"
            raise _contradicted(what, names[place], fields[place], columns, right, path)


def _refuse_lists(items: Sequence[str], name: str, path: Path) -> None:
    if sum(bool(_LIST.fullmatch(cell)) for cell in items) >= _MOST * len(items):
        write = f"polars.DataFrame.explode({name!r}), once a cell is a list"
        raise UserError(
            "the items of a line are a list",
            where=path,
            given=shorten(items[0]),
            allowed="a line an interaction, or a line a user whose items are fields",
            remedy=f"write a line an item, in Python: {write}",
        )


def refuse_odd_times(columns: tuple[str, ...], rows: Sequence[Sequence[str]], path: Path) -> None:
    """UserError where the times would not sort: days before years in one number, or a date whose clock stands in another field."""
    fields = [list(field) for field in zip(*rows)]
    if not fields or len(fields) != len(columns):
        return
    place = columns.index(TIME)
    shown = f"{fields[place][0]} in field {place + 1}"
    if are_years_last(fields[place]):
        allowed = "20170814, or 2017-08-14"
        raise UserError("times with the year last: as numbers they do not sort", where=path, given=shown, allowed=allowed, remedy=_WRITE)
    if are_of_two_orders(fields[place]):
        what, allowed = "dates of which the day or the month may stand first", "2017-08-14, or 14.08.2017"
        raise UserError(what, where=path, given=shown, allowed=allowed, remedy=_WRITE)
    clocks = [other for other, column in enumerate(columns) if column in (OTHER, RATING) and are_clocks(fields[other])]
    if clocks and are_days(fields[place]):
        given, allowed = f"{shown}, {fields[clocks[0]][0]} in field {clocks[0] + 1}", "both in one: 2017-08-14T10:51:09"
        raise UserError("the clock stands in a field of its own", where=path, given=given, allowed=allowed, remedy=_WRITE)


def refuse_log_as_sequences(rows: Sequence[Sequence[str]], even: bool, path: Path) -> None:
    """UserError where lines are a log that would be read as sequences: a user's id on several, or times. `even`: of equally many fields."""
    users = len({row[0] for row in rows})
    if even and len(rows) > 1:
        fields = [list(field) for field in zip(*(row for row in rows if len(row) == len(rows[0])))]
        if users < len(rows) or any(are_dates(values) for values in fields):
            raise unclear(fields, path)
    elif users < _MOST * len(rows) and len(rows) >= _FEWEST_TO_JUDGE:
        raise UserError(
            "lines of unequally many fields, of which several begin alike",
            where=path,
            given=f"{len(rows):,} lines that begin in {users:,} ways",
            allowed="a line an interaction with equally many fields, or a line a user",
            remedy="put a field with a separator in quotes; or data.format=sequences for a line a user",
        )


def unclear(fields: Sequence[Sequence[str]], path: Path) -> UserError:
    """The refusal of a log whose fields nothing tells apart."""
    if len(fields) < 2:
        signs = "commas, tabs, semicolons, bars, ^, ~, \\x01, two colons or blanks"
        what, allowed = "no fields can be told apart", f"a user, an item and more, separated by {signs}"
        return UserError(what, where=f"{path}:1", given=fields[0][0], allowed=allowed, remedy="mend the first line")
    return UserError(
        "the first lines do not say what the fields of this log are",
        where=f"{path}:1",
        given=f"{len(fields)} fields",
        remedy=f"say what each is, such as '{pasted(proposed(list(zip(*fields))))}'; or data.format=sequences for a line a user",
    )


def pasted(columns: Sequence[str]) -> str:
    return f"data.columns=[{','.join(column.removeprefix(SIDE) for column in columns)}]"


def _are_times(values: Sequence[str]) -> bool:
    digits = sum(bool(_WHOLE_SECONDS.fullmatch(value)) for value in values) >= _MOST * len(values)
    return digits or are_instants(values) or are_dates(values)


def _with_time_at(place: int, fields: int) -> tuple[str, ...]:
    """The time at `place`, then user, item and others in the fields that are left."""
    rest = iter([USER, ITEM, OTHER, OTHER, *[OTHER] * fields])
    return tuple(TIME if field == place else next(rest) for field in range(fields))


def without(columns: tuple[str, ...], place: int) -> tuple[str, ...]:
    """`columns` with another at `place`. What stood there is the next one that is a rating or another, if there is one."""
    moved = list(columns)
    for other in [*range(place + 1, len(columns)), *range(place)]:
        if columns[other] in (RATING, OTHER):
            moved[other] = columns[place]
            break
    moved[place] = OTHER
    return tuple(moved)


def _contradicted(what: str, name: str, values: Sequence[str], columns: tuple[str, ...], right: tuple[str, ...], path: Path) -> UserError:
    line = f"'{pasted(right)}'; or " if {USER, ITEM} <= set(right) else ""
    return UserError(what, where=path, given=f"{name}, such as {values[0]}", remedy=f"{line}'{pasted(columns)}', if that is meant")
