"""What would make a combination fit that does not: among the priced rows, the nearest one that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.decide.prices import Row

#: In the order of what a change asks of its user: a state of the optimizer, formats, how tables are placed, and other devices.
AXES = ("optimizer", "precision", "sharder", "cluster")


def with_fixes(rows: Sequence[Row]) -> list[Row]:
    """`rows`, where those that do not fit say which change makes them: the fewest axes, the first of them in `AXES`, the least cost."""
    able = [row for row in rows if row.fits and row.ms is not None]
    return [row if row.fits else replace(row, fix=_fix(row, [other for other in able if other.profile == row.profile])) for row in rows]


def _fix(row: Row, able: Sequence[Row]) -> str | None:
    """None where nothing that was priced fits: then the planner's own advice counts."""
    if not able:
        return None
    nearest = min(able, key=lambda other: (*_distance(row, other), other.cost))
    changed = " ".join(f"{axis}={getattr(nearest, axis)}" for axis in AXES if getattr(nearest, axis) != getattr(row, axis))
    cost = f"{nearest.cost:.2f} {'$' if nearest.usd_per_1e9 is not None else 'device-hours'} per 1e9"
    return f"{changed}: {nearest.ms:.2f} ms, {cost}"


def _distance(row: Row, other: Row) -> tuple[bool, int, list[int]]:
    """Another cluster is further than any change on this one."""
    differ = [place for place, axis in enumerate(AXES) if getattr(row, axis) != getattr(other, axis)]
    return row.cluster != other.cluster, len(differ), differ
