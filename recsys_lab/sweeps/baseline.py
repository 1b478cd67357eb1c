"""Which row of a sweep each row is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.sweeps.rows import Row

#: Of the config's data, what does not change what is evaluated.
NOT_THE_DATA = ("batch_size", "prefetch_batches", "frequencies", "cache", "objective")


@dataclass(frozen=True)
class Bases:
    """For each row the row that it is compared with.

    It is the row itself where it is a baseline, None where there is no row to compare with.
    """

    of_rows: tuple[int | None, ...]
    notes: tuple[str, ...]


def find_bases(rows: Sequence[Row], varying: Sequence[str], baseline: str | None) -> Bases:
    """`baseline` is `key=value,...`. Each row is compared with the row that has those and else its own choices, or with the only one.

    A key alone, such as `model`, asks for one baseline a value of it: the first such row with figures, of those that have the rest.
    Without `baseline`, with the first configuration; `none` compares nothing. Never with a row of other data: no figure of quality would
    mean anything. A baseline that fits no row, or every one, becomes a note.
    """
    if len(rows) < 2 or baseline == "none":
        return Bases((None,) * len(rows), ())
    data = [_data(row) for row in rows]
    if not baseline:
        with_figures = [j for j, row in enumerate(rows) if row.completed]
        first = [next((j for j in with_figures if _alike(data[i], data[j])), i) for i in range(len(rows))]
        names = "; ".join(_name_of(rows[j], varying) for j in dict.fromkeys(first))
        note = f"no ablation.baseline was given: compared with the first configuration, {names}"
        return Bases(tuple(first), (note, *_of_other_data(first)))
    words = [word.strip() for word in baseline.split(",")]
    settings = dict(word.partition("=")[::2] for word in words if "=" in word)
    each = [word for word in words if "=" not in word]
    fitting = [i for i, row in enumerate(rows) if all(row.setting(key) == value for key, value in settings.items())]
    unknown = [key for key in each if key not in varying]
    if not fitting or len(fitting) == len(rows) and not each or unknown:
        why = f"{', '.join(unknown)} varies in no row" if unknown else f"it fits {len(fitting) or 'none'} of the {len(rows)} rows"
        return Bases((None,) * len(rows), (f"ablation.baseline={baseline}: {why}: nothing is compared",))
    if each:
        same = [[j for j in fitting if _alike(data[i], data[j]) and _agree(rows[i], rows[j], each)] for i in range(len(rows))]
        firsts = tuple(next((j for j in of_row if rows[j].completed), None) for of_row in same)
        with_these = f" with {' '.join(f'{key}={value}' for key, value in settings.items())}" if settings else ""
        return Bases(firsts, (f"compared with the first row of each {', '.join(each)}{with_these}", *_of_other_data(firsts)))
    others = [key for key in varying if key not in settings]
    bases: list[int | None] = []
    for i, row in enumerate(rows):
        same_data = [j for j in fitting if _alike(data[i], data[j])]
        twins = [j for j in same_data if all(rows[j].overrides.get(key) == row.overrides.get(key) for key in others)]
        bases.append(i if i in fitting else twins[0] if twins else fitting[0] if len(fitting) == 1 and same_data else None)
    alike = " else alike" if len(fitting) > 1 else ""
    return Bases(tuple(bases), (f"compared with {baseline}{alike}", *_of_other_data(bases)))


def _agree(row: Row, other: Row, keys: Sequence[str]) -> bool:
    return all(row.setting(key) == other.setting(key) for key in keys)


def data_of_rows(rows: Sequence[Row]) -> tuple[int, ...]:
    """For each row the first one that has the same data."""
    data = [_data(row) for row in rows]
    return tuple(next(j for j in range(i + 1) if data[j] == data[i]) for i in range(len(rows)))


def _of_other_data(bases: Sequence[int | None]) -> list[str]:
    alone = sum(base is None or (base == i and bases.count(i) == 1) for i, base in enumerate(bases))
    return [f"{alone} of the {len(bases)} rows have no baseline with the same data and other choices"] if alone else []


def _name_of(row: Row, varying: Sequence[str]) -> str:
    return " ".join(f"{key}={row.overrides.get(key, 'default')}" for key in varying)


def _data(row: Row) -> dict | None:
    """What is evaluated, from the config; None where no job has come so far."""
    data = row.config.get("data")
    return None if data is None else {key: value for key, value in data.items() if key not in NOT_THE_DATA}


def _alike(data: dict | None, other: dict | None) -> bool:
    return data is None or other is None or data == other
