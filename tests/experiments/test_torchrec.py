"""TorchRec's own measurements: what a large table in host memory costs, from bytes over the link."""

from __future__ import annotations

import pytest

from experiments.torchrec.pull_4099 import CACHED_20, CACHED_40, DEVICE, UVM, cached, in_host_memory, large, least_share, priced, run
from recsys_lab.config.choices import built
from recsys_lab.studies.verdict import Tolerance, judge

STUDY = run("pull_4099", cluster="h100")
MS = {line.what: line.ours for line in STUDY.lines}


def test_all_placements_are_within_15_per_cent_and_in_the_published_order() -> None:
    verdict = judge(STUDY, Tolerance(relative=0.15, points=1.0))
    assert verdict.state == "reproduced" and verdict.orders == (3, 3) and verdict.statements == (3, 3) and verdict.by_construction == 1
    assert MS[DEVICE] < MS[CACHED_40] < MS[UVM] < MS[CACHED_20]


def test_the_cause_is_seen_in_the_phases() -> None:
    """Over 0.8 of 63 GB/s: each look-up's row, and each different row there and back; in vain, the misses too, there and back."""
    waits = {what: phases.get("exposed_store", 0.0) for what, phases in STUDY.data["phases_ms"].items()}
    gb_a_ms, row = 0.8 * 0.063, 2048 / 1e9
    kernels = (983_040 + 2 * 892_437) * row / gb_a_ms
    assert waits == pytest.approx({DEVICE: 0, CACHED_40: 0, UVM: kernels, CACHED_20: kernels + 2 * 0.8 * 892_437 * row / gb_a_ms}, rel=1e-5)


def test_a_cache_must_hold_the_rows_of_two_batches() -> None:
    """A jump, where they fit; below and above it more cache is never slower."""
    table, on, software = large(), built("cluster", "h100").reshaped(1, 2), built("profile", "torchrec").pipelined
    assert 2 * table.distinct(2) == pytest.approx(3.25e6, rel=2e-3) and least_share(table) == pytest.approx(0.325, rel=2e-3)
    none = priced([], in_host_memory(table), on, software).ms
    times = [priced(*cached(table, share), on, software).ms for share in (0.05, 0.2, 0.32, 0.33, 0.4, 1.0)]
    assert times == sorted(times, reverse=True) and times[2] > none > times[3]
