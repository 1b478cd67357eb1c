"""Where nothing fits: over all rows, the change that costs least."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.cluster import Cluster
from recsys_lab.decide.fixes import least_change
from recsys_lab.decide.rows import Row
from tests.simulate.clusters import cluster

LACKS = "the plan lacks {} on rank 3, which needs 99 GB; nearest change that would fit: {}"


def row(name: str, lacks: str, change: str) -> Row:
    why_not = LACKS.format(lacks, change)
    return Row(name, "dmt", "fp32", "adam", "torchrec", 65536, 1024, 16, fits=False, why_not=why_not)


def priced(hosts: int, price: float | None) -> Cluster:
    return replace(cluster(hosts, 8), price_per_device_hour=price)


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        (
            (2.5, 1.5),
            "costs least is that of a100x32 dmt fp32 adam, which lacks 3.0 GB: "
            "cluster.hosts=6 with sharder=torchrec_row_wise (48 devices, 72.00 $ an hour)",
        ),
        (
            (2.5, 4.0),
            "costs least is that of h100x16 dmt fp32 adam, which lacks 9.0 GB: "
            "cluster.hosts=5 with sharder=torchrec_row_wise (40 devices, 100.00 $ an hour)",
        ),
        (
            (None, 4.0),
            "needs the fewest devices is that of h100x16 dmt fp32 adam, which lacks 9.0 GB: "
            "cluster.hosts=5 with sharder=torchrec_row_wise (40 devices)",
        ),
    ],
)
def test_the_change_that_costs_least_an_hour_is_told_not_the_first_rows(prices: tuple[float | None, float], said: str) -> None:
    hosts = "cluster.hosts={} with sharder=torchrec_row_wise"
    lacking = [
        (row("h100x16", "99.0 GB", hosts.format(40)), priced(2, prices[0])),
        (row("h100x16", "9.0 GB", hosts.format(5)), priced(2, prices[0])),
        (row("a100x32", "3.0 GB", hosts.format(6)), priced(4, prices[1])),
        (row("a100x32", "1.0 GB", "none found; fewer rows"), priced(4, prices[1])),
    ]
    assert least_change(lacking) == f"the change that {said}"


def test_a_change_without_more_hosts_costs_what_the_cluster_costs() -> None:
    found = least_change([(row("h100x16", "9.0 GB", "tables in FP16, half the bytes a row"), priced(2, 2.0))])
    assert found.endswith("tables in FP16, half the bytes a row (16 devices, 32.00 $ an hour)")


def test_without_any_change_the_first_row_says_why() -> None:
    assert least_change([(row("h100x16", "9.0 GB", "none found; fewer rows"), priced(2, 2.0))]).startswith(
        "h100x16 dmt fp32 adam: the plan"
    )
