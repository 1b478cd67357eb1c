"""Memory over a simulated iteration: it begins and ends with what lasts, and never holds less."""

from __future__ import annotations

import pytest

from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.simulate import simulate
from recsys_lab.tables.remap import KEPT_IDS
from tests.plan.plans import FLAT_SCHEMES, FP32, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import cluster, profile


@pytest.mark.parametrize("kind", FLAT_SCHEMES)
@pytest.mark.parametrize("overlaps", [(), ("dense_sync", "host_tier")])
def test_what_comes_goes_again(kind: str, overlaps: tuple[str, ...]) -> None:
    made, work = plan((kind,), 2, 2), workload(512, dense_parameters=1_000_000)
    simulated, timeline = simulate(lower(made, access(TABLES, LENGTHS), FP32, work), cluster(2, 2), profile(*overlaps), made, work)
    lasting = max(bytes_of_ranks(made, work).lasting)
    assert all(at.lasting <= lasting and at.activations >= 0 and at.communication >= 0 for at in timeline.memory)
    assert max(at.total for at in timeline.memory) > timeline.memory[0].total
    assert timeline.memory[0].communication == 0 and timeline.memory[-1].total == pytest.approx(timeline.memory[0].total)
    assert all(a.ms <= b.ms for a, b in zip(timeline.memory, timeline.memory[1:]))
    assert timeline.memory[-1].ms <= simulated.iteration_ms * (1 + 1e-9)


@pytest.mark.parametrize("kind", FLAT_SCHEMES)
def test_training_adds_what_lasts_and_buffers_as_the_software_has_them(kind: str) -> None:
    made, work = plan((kind,), 2, 2), workload(512, dense_parameters=1_000_000)
    steps, held = lower(made, access(TABLES, LENGTHS), FP32, work), bytes_of_ranks(made, work)
    plain, _ = simulate(steps, cluster(2, 2), profile(), made, work)
    greedy, _ = simulate(steps, cluster(2, 2), profile(buffer_factor=3.0, process_memory_mb=40.0), made, work)
    assert plain.added_memory_bytes == max(held.totals)
    assert greedy.added_memory_bytes == max(a + 3 * b + c for a, b, c in zip(held.lasting, held.buffers, held.kept)) + 40e6


@pytest.mark.parametrize(("kind", "columns"), [("row_wise", 80), ("table_wise", 0)])
def test_gloo_works_on_a_copy_of_what_it_reduces(kind: str, columns: int) -> None:
    """Of the pooled rows of all samples that a reduce-scatter takes in; NCCL works in place, and an all-to-all has no copy."""
    made, work = plan((kind,), 2, 2), workload(512, dense_parameters=1_000_000)
    steps, software = lower(made, access(TABLES, LENGTHS), FP32, work), profile(buffer_factor=2.0)
    on_cpu, on_gpu = (simulate(steps, cluster(2, 2, kind=device), software, made, work)[0] for device in ("cpu", "cuda"))
    assert on_cpu.added_memory_bytes == on_gpu.added_memory_bytes + 2 * 4 * 4 * 512 * columns


def test_tables_in_tiers_keep_the_ids_of_their_last_look_ups() -> None:
    """In half of an int64 where that is enough."""
    tiered, row_wise = (bytes_of_ranks(plan((kind,), 2, 2), workload(512)) for kind in ("flexshard", "row_wise"))
    assert set(tiered.kept) == {len(TABLES) * KEPT_IDS * 4} and set(row_wise.kept) == {0}
