"""The four bandwidths of FlexShard's cost model (arXiv 2301.02959, table 1), derived from a cluster's links."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated

from recsys_lab.base.ranges import OneOf, Positive
from recsys_lab.base.schema import checked
from recsys_lab.cluster import Cluster


@dataclass(frozen=True)
class Bandwidths:
    """GB/s, payload over time: bytes that a rank puts into the collective over the seconds it takes. Infinite where nothing travels.

    `ar_cross_gb_s` counts all E rows, as table 3 does, though a rank all-reduces E / W of them. It is the bandwidth of a whole host, W
    ranks together.
    """

    a2a_global_gb_s: float
    a2a_intra_gb_s: float
    ar_global_gb_s: float
    ar_cross_gb_s: float

    @staticmethod
    def of(cluster: Cluster, overrides: Mapping[str, float] | None = None) -> Bandwidths:
        """From the links of `cluster`, large messages, no latency. `overrides` replaces single fields.

        All-to-all: of a rank's bytes (W - 1) / U go to its own host and (U - W) / U to others, both at once. All-reduce: a ring moves
        2 (n - 1) / n of the payload. Every rank of a host drives a ring over its own cross-host link. UserError for what cannot be.
        """
        hosts, near = cluster.hosts, cluster.ranks_per_host
        world = hosts * near
        intra, cross = cluster.near.bandwidth_gb_s, cluster.cross_host.bandwidth_gb_s
        ring = 2 * (world - 1) / world
        derived = Bandwidths(
            a2a_global_gb_s=min(_over(intra, (near - 1) / world), _over(cross, (world - near) / world)),
            a2a_intra_gb_s=_over(intra, (near - 1) / near),
            ar_global_gb_s=min(
                _over(intra, ring) if near > 1 else math.inf,
                _over(cross * near, ring) if hosts > 1 else math.inf,
            ),
            ar_cross_gb_s=_over(cross * near, 2 * (hosts - 1) / hosts),
        )
        checked(overrides or {}, GivenBandwidths, "sharder.planner.bandwidths")
        return replace(derived, **(overrides or {}))


def _over(bandwidth_gb_s: float, share: float) -> float:
    return bandwidth_gb_s / share if share > 0 else math.inf


#: Those that replace derived ones, by name.
GivenBandwidths = dict[Annotated[str, OneOf(tuple(field.name for field in fields(Bandwidths)))], Positive]
