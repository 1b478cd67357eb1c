"""Times of FlexShard's four collectives, by two models: the cluster's links, and a line through the paper's own all-to-alls."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.flexshard.models import MODELS, cluster, published, table
from recsys_lab.cluster import Cluster
from recsys_lab.plan import Step
from recsys_lab.simulate.collectives import collective_ms
from recsys_lab.units import GB, transfer_ms

SHARDINGS = ("RW", "2-tier", "3-tier")


@dataclass(frozen=True)
class Volumes:
    """Bytes that a rank puts in: into an all-to-all one way, into an all-reduce. 0 where there is none."""

    global_bytes: float
    intra_bytes: float = 0.0
    all_reduce_bytes: float = 0.0
    cross_bytes: float = 0.0


@dataclass(frozen=True)
class Times:
    """ms of an iteration, all-to-alls both ways; 0 where there is none."""

    global_ms: float
    intra_ms: float = 0.0
    all_reduce_ms: float = 0.0
    cross_ms: float = 0.0

    @property
    def serial_ms(self) -> float:
        """One after the other."""
        return self.global_ms + self.intra_ms + self.all_reduce_ms + self.cross_ms

    @property
    def hidden_ms(self) -> float:
        """Those that table 6 calls overlappable, behind other work: the others are the collectives over all ranks."""
        return self.global_ms + self.all_reduce_ms


def volumes(rows: dict[str, int], shares: dict[str, float], length: float, model: str) -> Volumes:
    """Of tiers with these rows and shares of the model's look-ups, `length` of them a sample."""
    row_bytes = table(model).row_bytes
    looked_up = published().setting.batch_size * length * row_bytes
    return Volumes(
        shares["row_sharded"] * looked_up,
        shares["host_sharded"] * looked_up,
        rows["replicated"] * row_bytes,
        rows["host_sharded"] * row_bytes / cluster().ranks_per_host,
    )


def by_links(given: Volumes, on: Cluster | None = None) -> Times:
    """On a100x32, or its like: bytes over the slower kind of link, and latencies (recsys_lab.simulate.collectives)."""
    where = on or cluster()
    world, hosts = (where.ranks,), tuple(where.ranks_of_host(host) for host in range(where.hosts))
    peers = tuple(where.peers(local) for local in range(where.ranks_per_host))

    def ms(kind: str, size: float, groups: tuple[tuple[int, ...], ...]) -> float:
        return collective_ms(Step("s", kind, "forward", (size,), groups), where) if size else 0.0

    return Times(
        2 * ms("all_to_all", given.global_bytes, world),
        2 * ms("all_to_all", given.intra_bytes, hosts),
        ms("all_reduce", given.all_reduce_bytes, world),
        ms("all_reduce", given.cross_bytes, peers),
    )


def line_through_published() -> tuple[float, float]:
    """(ms, GB/s) of the least-squares line through table 6's twelve global all-to-alls, both ways together."""
    sizes, times = [], []
    for model in MODELS:
        for given in published().table6[model].values():
            sizes.append(2 * 4 * given.global_elements / GB)
            times.append(given.global_ms)
    mean_size, mean_time = sum(sizes) / len(sizes), sum(times) / len(times)
    slope = sum((x - mean_size) * (y - mean_time) for x, y in zip(sizes, times)) / sum((x - mean_size) ** 2 for x in sizes)
    return mean_time - slope * mean_size, 1e3 / slope


def global_by_line(given: Volumes) -> float:
    """ms of the global all-to-all, both ways, on that line."""
    start_ms, gb_s = line_through_published()
    return start_ms + transfer_ms(2 * given.global_bytes, gb_s)


def by_line(given: Volumes) -> Times:
    """As `by_links`, but the global all-to-all on that line."""
    return replace(by_links(given), global_ms=global_by_line(given))


def published_times(model: str, sharding: str) -> Times:
    given = published().table6[model][sharding]
    return Times(given.global_ms, given.get("intra_ms", 0.0), given.get("all_reduce_ms", 0.0), given.get("cross_ms", 0.0))


def published_volumes(model: str, sharding: str) -> Volumes:
    """Observed global all-to-alls (table 6); the others from table 5's rows and shares of the look-ups observed row-wise."""
    observed = published().table6[model]
    global_bytes = 4.0 * observed[sharding].global_elements
    if sharding == "RW":
        return Volumes(global_bytes)
    tiers = published().table5[model][sharding]
    row_bytes = table(model).row_bytes
    return Volumes(
        global_bytes,
        tiers.share.host_sharded / 100 * 4.0 * observed.RW.global_elements,
        tiers.rows.replicated * row_bytes,
        tiers.rows.host_sharded * row_bytes / cluster().ranks_per_host,
    )
