"""From what a probe saw to a `Partition`: DMT section 3.3, in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.partition import CHOICES, DIMS
from recsys_lab.sharders.dmt.affinity import coordinates, distances
from recsys_lab.sharders.dmt.names import STRIDED
from recsys_lab.sharders.dmt.partition import balanced_groups, in_groups, size_bounds, strided
from recsys_lab.sharders.dmt.partition_file import Partition, adjusted_rand_index
from recsys_lab.sharders.dmt.towers import features_of
from recsys_lab.tables import Table


def find(
    between: np.ndarray,
    data: DataSet,
    tables: Sequence[Table],
    towers: int,
    *,
    strategy: str = "coherent",
    dims: int = DIMS,
    size_ratio: float = 1.0,
    seed: int = 0,
    source: Mapping[str, Any] | None = None,
    groups: Sequence[Sequence[int]] | None = None,
) -> Partition:
    """Tables into `towers` groups, from the affinity `between` the features of `data` [F, F].

    A table that several features read has the mean of their affinities.

    Args:
        between: the affinity of each two features.
        data: whose features they are.
        tables: that the features read.
        towers: how many groups.
        strategy: coherent, diverse, or strided, which looks at no affinity.
        dims: n of the coordinates.
        size_ratio: R, the largest tower's tables over the smallest's.
        seed: of the coordinates' starts, and of K-means.
        source: where the affinity is from, for the file.
        groups: tables by number, each group divided apart; None: all together.

    Returns:
        The towers, with the affinity and the coordinates.

    Raises:
        UserError: for what cannot be divided so.
    """
    check(tables, towers, strategy, dims, size_ratio)
    number = {feature.name: at for at, feature in enumerate(data.features)}
    readers = [[number[feature] for feature in table.features] for table in tables]
    of_tables = np.array([[between[np.ix_(a, b)].mean() for b in readers] for a in readers])
    points, stress = coordinates(distances(of_tables, "coherent" if strategy == STRIDED else strategy), dims, seed)
    loads = [data.access[table.name].mean_length * table.row_bytes for table in tables]

    def divide(group: Sequence[int], count: int) -> list[list[int]]:
        if strategy == STRIDED:
            return strided(len(group), count)
        return balanced_groups(points[list(group)], count, size_ratio, [loads[at] for at in group], seed)

    members = in_groups(groups or [range(len(tables))], towers, divide)
    table_of = {feature: at for at, table in enumerate(tables) for feature in table.features}
    return Partition(
        towers=features_of(tables, members),
        strategy=strategy,
        features=tuple(number),
        affinity=tuple(tuple(round(float(value), 6) for value in row) for row in between),
        coordinates=tuple(tuple(float(value) for value in points[table_of[name]]) for name in number),
        stress=stress,
        seed=seed,
        size_ratio=size_ratio,
        data_fingerprint=data.fingerprint,
        balance=balance(members, loads),
        source=dict(source or {}),
    )


def check(tables: Sequence[Table], towers: int, strategy: str, dims: int, size_ratio: float) -> None:
    """Raises UserError for what `find` cannot do, so that nobody waits for a probe first."""
    if strategy not in CHOICES:
        raise UserError("no such strategy", where="--strategy", given=strategy, allowed=", ".join(CHOICES))
    if not 1 <= dims <= tables[0].dim:
        raise UserError("out of range", where="--dims", given=dims, allowed=f"1 to {tables[0].dim}, an embedding's dimension")
    size_bounds(len(tables), towers, size_ratio)


def balance(members: Sequence[Sequence[int]], loads: Sequence[float]) -> dict[str, Any]:
    """How even towers of tables, given by number, are. `loads`: bytes looked up a sample by table."""
    sizes = [len(group) for group in members]
    bytes_of = [float(sum(loads[table] for table in group)) for group in members]
    return {
        "tables": sizes,
        "size_ratio": max(sizes) / min(sizes),
        "look_up_bytes_per_sample": bytes_of,
        "load_over_mean": max(bytes_of) * len(bytes_of) / sum(bytes_of),
    }


def coherence(between: np.ndarray, features: Sequence[str], towers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """The mean affinity of two features of one tower, and of two towers; 0 where there are no such pairs."""
    tower_of = {name: tower for tower, group in enumerate(towers) for name in group}
    label = np.array([tower_of[name] for name in features])
    same = np.equal.outer(label, label)
    apart = ~np.eye(len(label), dtype=bool)
    within, across = (float(between[pairs].mean()) if pairs.any() else 0.0 for pairs in (same & apart, ~same))
    return within, across


def summary(partition: Partition, between: np.ndarray, data: DataSet, other: Partition | None) -> dict[str, Any]:
    """How good a partition is. It has the balance, the mean affinity within and across towers, and the agreement with others.

    `agreement` is with `other`, `agreement_with_planted` with the groups that `data` was generated from, each only where there is one.
    """
    within, across = coherence(between, partition.features, partition.towers)
    figures = {"towers": partition.towers, "balance": partition.balance, "affinity_within": within, "affinity_across": across}
    if other is not None:
        figures["agreement"] = adjusted_rand_index(partition.towers, other.towers)
    if planted := getattr(data, "groups", ()):
        figures["agreement_with_planted"] = adjusted_rand_index(partition.towers, planted)
    return figures
