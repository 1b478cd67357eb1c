"""Memory over a simulated iteration: it begins and ends with what lasts, and never holds less."""

from __future__ import annotations

import pytest

from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import RankMemory, bytes_of_ranks
from recsys_lab.plan.steps import DENSE, Step, Steps
from recsys_lab.simulate import simulate
from recsys_lab.simulate.memory import MemoryAt, added_memory_bytes, memory_over_time
from recsys_lab.simulate.timeline import Event
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


@pytest.mark.parametrize(("kind", "copied"), [("all_gather", 200.0), ("reduce_scatter", 100.0), ("all_reduce", 0.0)])
def test_gloo_copies_what_a_group_has_and_not_what_the_world_has(kind: str, copied: float) -> None:
    """Two groups of two ranks; each rank puts in 100 bytes at most. Of several collectives the largest copy counts."""
    steps = tuple(Step(f"s{size}", kind, "forward", (size,), ((0, 1), (2, 3))) for size in (40.0, 100.0, 60.0))
    held = RankMemory((1, 2, 3, 4), (10,) * 4, (100,) * 4, (1000, 1000, 1000, 2000), (5,) * 4)
    found = added_memory_bytes(Steps(4, 1, steps), cluster(2, 2, kind="cpu"), profile(buffer_factor=2.0), held)
    assert found == 4 + 10 + 100 + 5 + 2 * (2000 + copied)


def test_what_each_step_takes_and_leaves_by_hand() -> None:
    """Embeddings stay until the backward has read them, gradients until the end; activations until the backward's end."""
    dense = {phase: Step(f"dense.{phase}", "dense", phase, (1.0,), role=DENSE) for phase in ("forward", "backward")}
    rows = Step("rows", "all_to_all", "forward", (3.0, 4.0), ((0, 1),), received_of_rank=(10.0, 7.0))
    gradients = Step("gradients", "all_to_all", "backward", (20.0,), ((0, 1),))
    events = [
        Event(rows, 0.0, 1.0, "across"),
        Event(dense["forward"], 1.0, 3.0),
        Event(dense["backward"], 3.0, 6.0),
        Event(gradients, 6.0, 7.0, "across"),
        Event(Step("update", "update", "optimizer", (1.0,)), 7.0, 9.0),
        Event(Step("others", "all_to_all", "forward", (99.0,), ((1, 2),)), 2.0, 30.0, "across", elsewhere=True),
    ]
    held = RankMemory((100, 200), (0, 0), (11, 11), (0, 0), (0, 0))
    found = memory_over_time(events, held, 1, workload(5, activation_bytes_per_sample=6.0))
    assert found == [
        MemoryAt(0.0, 211, 0.0, 0.0),
        MemoryAt(0.0, 211, 0.0, 10.0),
        MemoryAt(1.0, 211, 30.0, 10.0),
        MemoryAt(6.0, 211, 0.0, 10.0),
        MemoryAt(6.0, 211, 0.0, 0.0),
        MemoryAt(6.0, 211, 0.0, 20.0),
        MemoryAt(9.0, 211, 0.0, 0.0),
    ]
    assert [at.total for at in found] == [211.0, 221.0, 251.0, 221.0, 211.0, 231.0, 211.0]
