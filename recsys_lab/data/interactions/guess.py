"""What the fields of a log are by their values, and refusals of guesses that the values contradict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from recsys_lab.data.interactions.times import are_fractions, are_instants, kind_of_times
from recsys_lab.errors import UserError

USER, ITEM, RATING, TIME, OTHER = ("user", "item", "rating", "time", "other")
ELSE = "else: data.columns"
_WHOLE_SECONDS = re.compile(r"[0-9]{9,13}(\.[0-9]+)?")  # from 1973 on, in seconds or milliseconds
_MOST = 0.9


def bare_columns(rows: Sequence[Sequence[str]], path: Path) -> tuple[str, ...]:
    """What each field is in a log without a header. `rows` have equally many. UserError where the values do not say it."""
    fields = [list(field) for field in zip(*rows)]
    dates = [place for place, values in enumerate(fields) if kind_of_times(values) == "iso"]
    if len(fields) not in (2, 3, 4) or len(dates) > 1 or len(dates) == len(fields) - 1:
        raise unclear(fields, path)
    columns: tuple[str, ...] = (USER, ITEM, RATING, TIME)[: len(fields)]
    if dates and dates[0] != len(fields) - 1 or len(fields) == 3 and _are_times(fields[2]):
        columns = _with_time_at(dates[0] if dates else 2, len(fields))
    refuse_contradicted(columns, [f"field {place}" for place in range(1, len(fields) + 1)], rows, path, bare=True)
    return columns


def refuse_contradicted(
    columns: tuple[str, ...], names: Sequence[str], rows: Sequence[Sequence[str]], path: Path, bare: bool = False
) -> None:
    """UserError where a user or an item is a time or a price, or where a field of no name that says so holds the times.

    `names` are those of the fields, for messages. `bare`: no header has named them.
    """
    fields = [list(field) for field in zip(*rows)]
    if not fields:
        return
    others = TIME in columns and _are_times(fields[columns.index(TIME)])
    for place, column in enumerate(columns):
        if column in (USER, ITEM):
            is_time = kind_of_times(fields[place]) == "iso" or bare and not others and are_instants(fields[place])
            if is_time or are_fractions(fields[place]):
                right = _with_time_at(place, len(columns)) if is_time else without(columns, place)
                raise _contradicted(
                    f"the {column} would be a {'time' if is_time else 'price'}", names[place], fields[place], columns, right, path
                )
        elif column == OTHER and TIME not in columns and are_instants(fields[place]):
            right = tuple(TIME if other == place else old for other, old in enumerate(columns))
            raise _contradicted("no column has the name of a time, but one holds times", names[place], fields[place], columns, right, path)


def refuse_log_as_sequences(rows: Sequence[Sequence[str]], path: Path) -> None:
    """UserError where lines of equally many fields are a log that would be read as sequences: a user's id on several, or times."""
    fields = [list(field) for field in zip(*rows)]
    if len(set(fields[0])) < len(rows) or any(kind_of_times(values) == "iso" for values in fields):
        raise unclear(fields, path)


def unclear(fields: Sequence[Sequence[str]], path: Path) -> UserError:
    """The refusal of a log whose fields nothing tells apart."""
    return UserError(
        "the first lines do not say what the fields of this log are",
        where=f"{path}:1",
        given=f"{len(fields)} fields",
        remedy=f"say what each is: '{pasted([USER, ITEM, OTHER, TIME, *[OTHER] * len(fields)][: max(len(fields), 2)])}'; "
        "or data.format=sequences for a line a user",
    )


def pasted(columns: Sequence[str]) -> str:
    return f"data.columns=[{','.join(columns)}]"


def _are_times(values: Sequence[str]) -> bool:
    digits = sum(bool(_WHOLE_SECONDS.fullmatch(value)) for value in values) >= _MOST * len(values)
    return digits or are_instants(values)


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
