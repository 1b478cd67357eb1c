"""What would make a combination fit that does not. It is the nearest priced row that fits, or the planner's cheapest change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.cluster import Cluster
from recsys_lab.cluster.price import GIVEN
from recsys_lab.decide.rows import Row

#: In the order of what a change asks of its user. The optimizer's state comes first, then formats, then how tables are placed, then other
#: devices.
AXES = ("optimizer", "precision", "sharder", "cluster")
#: A planner's words: how much is missing, what would change that, and how many hosts the change needs.
LACKS = re.compile(r"lacks ([\d.]+ [kMGT]?B)")
CHANGE = re.compile(r"nearest change that would fit: (.+)$")
HOSTS = re.compile(r"cluster\.hosts=(\d+)")


def with_fixes(rows: Sequence[Row]) -> list[Row]:
    """`rows`, where each that does not fit says which change makes it fit.

    The change has the fewest axes; ties go to the first in `AXES`, then to the least cost.
    """
    able = [row for row in rows if row.fits and row.ms is not None]
    return [row if row.fits else replace(row, fix=_fix(row, [other for other in able if other.profile == row.profile])) for row in rows]


def _fix(row: Row, able: Sequence[Row]) -> str | None:
    """None where nothing that was priced fits: then the planner's own advice counts."""
    if not able:
        return None
    nearest = min(able, key=lambda other: (*_distance(row, other), other.cost_order))
    changed = " ".join(f"{axis}={getattr(nearest, axis)}" for axis in AXES if getattr(nearest, axis) != getattr(row, axis))
    cost = f"{nearest.cost:.2f} {'$' if nearest.usd_per_1e9 is not None else 'device-hours'} per 1e9"
    return f"{changed}: {nearest.ms:.2f} ms, {cost}"


def _distance(row: Row, other: Row) -> tuple[bool, int, list[int]]:
    """Another cluster is further than any change on this one."""
    differ = [place for place, axis in enumerate(AXES) if getattr(row, axis) != getattr(other, axis)]
    return row.cluster != other.cluster, len(differ), differ


def least_change(lacking: Sequence[tuple[Row, Cluster]]) -> str:
    """The change that costs least an hour, over rows that do not fit, each with its cluster. Ties go to the first.

    Where a cluster has no price it is the one with the fewest devices.
    """
    changes = [(row, cluster, match[1]) for row, cluster in lacking if (match := CHANGE.search(row.why_not or ""))]
    able = [one for one in changes if not one[2].startswith("none found")]
    if not able:
        row, _ = lacking[0]
        return f"{row.name}: {row.why_not}"
    paid = all(cluster.price is not None for _, cluster, _ in able)
    row, cluster, change = min(able, key=lambda one: _devices(one[1], one[2]) * (_usd(one[1]) if paid else 1.0))
    devices, cost = _devices(cluster, change), ""
    if paid and cluster.price is not None:
        cost = f", {devices * _usd(cluster):,.2f} $ an hour" + ("" if cluster.price.origin == GIVEN else f" at the {cluster.price.origin}")
    lacks = LACKS.search(row.why_not or "")
    least = "costs least" if paid else "needs the fewest devices"
    return (
        f"the change that {least} is that of {row.name}, which lacks {lacks[1] if lacks else 'memory'}: {change} ({devices} devices{cost})"
    )


def _usd(cluster: Cluster) -> float:
    return cluster.price.usd_per_device_hour if cluster.price is not None else 1.0


def _devices(cluster: Cluster, change: str) -> int:
    """How many it needs."""
    hosts = HOSTS.search(change)
    return int(hosts[1]) * cluster.ranks_per_host if hosts else cluster.world_size
