"""Which features make which tower: a strided assignment, a partition that was found before, or one that is found now."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from recsys_lab.base.files import path_of
from recsys_lab.base.ranges import Count, OneOf
from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError
from recsys_lab.schemes.towers.sites import Sites, sites_of
from recsys_lab.sharders.dmt.names import ABSOLUTES, OF_MEAN, STRATEGIES, STRIDED, WEIGHTED
from recsys_lab.sharders.dmt.partition import dealt, in_groups, strided
from recsys_lab.sharders.dmt.partition_file import load_partition
from recsys_lab.tables import Table

KEY = "sharder.towers"
Towers = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class TowerOptions:
    """`count`: T; null: as many as `partition` has, else as the cluster has hosts, or fewer where there are fewer tables.

    `partition`: a file of `python -m recsys_lab partition`; null: by `strategy`.
    `strategy`: strided puts table i in tower i modulo T, the paper's naive assignment (5.2.3). weighted deals as many tables to each tower
    by their bytes and columns, the heaviest first. coherent and diverse put features that are alike together or apart (3.3), as a short
    training of the model on the data finds them: `probe_steps` batches, in one process.
    `absolute`: of_mean has the affinity of the paper, the absolute value of a mean cosine; of_samples takes it of each sample first.
    `groups`: patterns of feature names. Tables are first divided by the first pattern that they fit, each group by its own share of the
    towers, as the paper's XLRM by item, user and both; the others are a group of their own.
    `column_slices`: so many features, with a table each, in place of each of the data's: equal parts of its columns (footnote 1).
    """

    count: Count | None = None
    partition: str | None = None
    strategy: Annotated[str, OneOf((STRIDED, WEIGHTED, *STRATEGIES))] = STRIDED
    probe_steps: Count = 500
    absolute: Annotated[str, OneOf(ABSOLUTES)] = OF_MEAN
    groups: list[str] | None = None
    column_slices: Count = 1

    @property
    def probes(self) -> bool:
        """Whether towers are those that a short training finds."""
        return self.partition is None and self.strategy in STRATEGIES

    def count_of(self, tables: Sequence[Table], cluster: Cluster) -> int:
        """T, where no file decides. Raises UserError where there are more towers than tables."""
        count = most_towers(len(tables), cluster.hosts) if self.count is None else self.count
        if not 1 <= count <= len(tables):
            raise UserError("each tower needs a table", where=f"{KEY}.count", given=count, allowed=f"1 to {len(tables)}, the tables")
        return count

    def groups_of(self, tables: Sequence[Table]) -> list[list[int]]:
        """Tables by number, as `groups` divide them first. Raises UserError for a pattern that none of the remaining tables fits."""
        left, groups = list(range(len(tables))), list[list[int]]()
        for pattern in self.groups or ():
            own = [at for at in left if all(fnmatch.fnmatchcase(feature, pattern) for feature in tables[at].features)]
            if not own:
                raise UserError("no table of the remaining ones fits", where=f"{KEY}.groups", given=pattern)
            groups.append(own)
            left = [at for at in left if at not in own]
        return [*groups, left] if left else groups

    def towers(self, tables: Sequence[Table], cluster: Cluster, found: Towers = ()) -> Towers:
        """T groups of feature names. A table's features are all in one tower. `found`: those of a short training, where it `probes`.

        Where hosts hold several towers, or towers lie on unlike numbers of hosts, towers are numbered so that hosts have like shares.

        Raises UserError where T towers cannot share the hosts, and where there are more towers than tables. So does a partition with other
        features.
        """
        if self.partition is not None:
            towers = _read(path_of(self.partition, f"{KEY}.partition"), tables, self.count)
        else:
            count = self.count_of(tables, cluster)
            towers = found or features_of(tables, in_groups(self.groups_of(tables), count, partial(self._divided, tables)))
        return balanced(towers, tables, sites_of(len(towers), cluster.hosts, cluster.ranks_per_host))

    def _divided(self, tables: Sequence[Table], group: Sequence[int], towers: int) -> list[list[int]]:
        """Positions in `group`, tables by number, without a training."""
        if self.strategy == WEIGHTED:
            return dealt([(tables[at].weight_bytes, len(tables[at].features) * tables[at].dim) for at in group], towers)
        return strided(len(group), towers)


def balanced(towers: Towers, tables: Sequence[Table], sites: Sites) -> Towers:
    """`towers` in the order in which sites have like shares of bytes and of looked-up columns; as they are where that is no better.

    The heaviest first: to the site that then has least for each host, of such with like shares to the one that takes fewest.
    """
    size = {feature: table.weight_bytes / len(table.features) for table in tables for feature in table.features}
    columns = {feature: table.dim for table in tables for feature in table.features}
    all_bytes, all_columns = sum(size.values()), sum(columns.values())
    share = {t: max(sum(size[f] for f in t) / all_bytes, sum(columns[f] for f in t) / all_columns) for t in towers}
    members: list[list[tuple[str, ...]]] = [[] for _ in sites.hosts]
    filled = [0.0] * sites.count
    for tower in sorted(towers, key=lambda t: -share[t]):
        open_to = [site for site in range(sites.count) if len(members[site]) < sites.towers[site]]
        site = min(open_to, key=lambda site: ((filled[site] + share[tower]) / sites.hosts[site], sites.towers[site], site))
        members[site].append(tower)
        filled[site] += share[tower]
    as_given = [sum(share[towers[t]] for t in sites.towers_of(site)) for site in range(sites.count)]
    fullest, before = (max(f / hosts for f, hosts in zip(each, sites.hosts)) for each in (filled, as_given))
    return tuple(tower for site in members for tower in site) if fullest < before * (1 - 1e-9) else towers


def most_towers(tables: int, hosts: int) -> int:
    """The most towers that leave none without a table, and divide the hosts."""
    return next(count for count in range(min(tables, hosts), 0, -1) if hosts % count == 0)


def features_of(tables: Sequence[Table], members: Sequence[Sequence[int]]) -> Towers:
    """The features of tables that are given by number."""
    return tuple(tuple(feature for table in group for feature in tables[table].features) for group in members)


def _read(path: Path, tables: Sequence[Table], count: int | None) -> Towers:
    where = f"{KEY}.partition"
    towers = load_partition(path).towers
    tower_of = {feature: tower for tower, group in enumerate(towers) for feature in group}
    features = [feature for table in tables for feature in table.features]
    lacking, foreign = [f for f in features if f not in tower_of], sorted(set(tower_of) - set(features))
    if lacking or foreign:
        sides = ((lacking, "only here"), (foreign, "only there"))
        differences = [f"{len(names)} {what}, such as {names[0]}" for names, what in sides if names]
        raise UserError(
            "a partition of other features",
            where=f"{where}={path}",
            given=f"{len(tower_of)} features there, {len(features)} here: {'; '.join(differences)}",
            remedy="make one for these data: python -m recsys_lab partition",
        )
    if count is not None and count != len(towers):
        raise UserError("another number of towers", where=f"{where}={path}", given=len(towers), allowed=f"{KEY}.count={count}, or null")
    for table in tables:
        if len({tower_of[feature] for feature in table.features}) > 1:
            raise UserError(
                "the features of one table are in several towers", where=f"{where}={path}", given=f"table {table.name}", allowed="one tower"
            )
    return towers
