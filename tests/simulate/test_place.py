"""Iterations placed by hand: every step takes whole milliseconds, so that each moment can be told from what waits for what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.plan.steps import DENSE, DENSE_SYNC, HOST_TIER, MODULE_SYNC, SIZES, Step, Steps
from recsys_lab.plan.workload import DenseLayer
from recsys_lab.simulate.order import ordered
from recsys_lab.simulate.timeline import place, schedule
from tests.plan.plans import workload
from tests.simulate.clusters import cluster, profile

FLOPS_A_MS = 20e9  # 0.4 of 50 TFLOP/s
LOOKED_UP_A_MS, UPDATED_A_MS, MOVED_A_MS = 500e6, 250e6, 800e6  # of 1000 GB/s, by the profile's shares
BUCKET_MIB = 10e6 / (1 << 20)
WORLD = ((0, 1, 2, 3),)
Spans = dict[str, tuple[list[float], list[float]]]


def dense(phase: str, ms: float, *after: str) -> Step:
    return Step(f"dense.{phase}", "dense", phase, (1.0,), flops=ms * FLOPS_A_MS, after=after, number_format="fp32", role=DENSE)


#: Two hosts of two ranks. Ids take 2 ms (30 MB over 10 GB/s are far, to two of four); look-ups 1, 2, 1 and 3.
UNEVEN = Steps(
    4,
    100,
    (
        Step("ids", "all_to_all", "input", (40e6,), WORLD),
        Step("lookup", "lookup", "forward", (LOOKED_UP_A_MS, 2 * LOOKED_UP_A_MS, LOOKED_UP_A_MS, 3 * LOOKED_UP_A_MS), after=("ids",)),
        Step("near", "all_to_all", "forward", (200e6,), ((0, 1), (2, 3)), after=("lookup",)),
        Step(
            "far", "all_to_all", "forward", (20e6, 20e6, 20e6, 40e6), ((0, 2), (1, 3)), after=("lookup",),
            received_of_rank=(20e6, 40e6, 20e6, 20e6),
        ),  # 1 ms between 0 and 2, and 2 ms between 1 and 3
        dense("forward", 3, "near", "far"),
        dense("backward", 6, "dense.forward"),
        Step("sync", "all_reduce", "backward", (20e6,), WORLD, after=("dense.backward",), role=DENSE_SYNC),  # 1.5 ms
        Step("one", "all_to_all", "backward", (20e6,), ((0, 2),), after=("dense.backward",)),  # 1 ms, of two ranks
        Step("update", "update", "backward", (UPDATED_A_MS,), after=("one",)),
        Step("dense.optimizer", "update", "optimizer", (MOVED_A_MS,), after=("sync",), role=DENSE),
    ),
)  # fmt: skip


def spans(steps: Steps, *overlaps: str, kind: str = "cpu", message_us: float = 0.0, **software: float) -> Spans:
    on = cluster(2, 2, kind=kind, cross_us=message_us, intra_us=message_us)
    whole = place(steps, on, profile(*overlaps, dense_bucket_mib=BUCKET_MIB, **{"launch_overhead_us": 0.0} | software))
    return {p.step.name: (p.start.round(9).tolist(), p.end.round(9).tolist()) for p in whole.placed}


def alike(start: float, end: float) -> tuple[list[float], list[float]]:
    return [start] * 4, [end] * 4


def test_without_overlap_a_collective_waits_for_its_slowest_rank_and_all_else_for_it() -> None:
    assert spans(UNEVEN) == {
        "ids": alike(0, 2),
        "lookup": ([2, 2, 2, 2], [3, 4, 3, 5]),
        "near": ([4, 4, 5, 5], [5, 5, 6, 6]),
        "far": ([6, 6, 6, 6], [7, 8, 7, 8]),
        "dense.forward": ([7, 8, 7, 8], [10, 11, 10, 11]),
        "dense.backward": ([10, 11, 10, 11], [16, 17, 16, 17]),
        "sync": alike(17, 18.5),
        "one": ([18.5, 18.5, 18.5, 18.5], [19.5, 18.5, 19.5, 18.5]),
        "update": ([19.5, 18.5, 19.5, 18.5], [20.5, 19.5, 20.5, 19.5]),
        "dense.optimizer": ([20.5, 19.5, 20.5, 19.5], [21.5, 20.5, 21.5, 20.5]),
    }


def test_gradients_in_buckets_begin_in_the_backward_and_go_behind_embeddings() -> None:
    """Two buckets: the last begins at 17 and takes 0.75, so the first begins at 16.25; ranks 0 and 2 exchange rows until 17 first."""
    found = spans(UNEVEN, "dense_sync")
    assert found["one"] == ([16, 17, 16, 17], [17, 17, 17, 17])
    assert found["update"] == alike(17, 18)
    assert found["sync"] == alike(16.25, 18.5)
    assert found["dense.optimizer"] == alike(18.5, 19.5)


def test_the_next_batchs_ids_begin_with_the_dense_part_and_end_when_the_link_rests() -> None:
    found = spans(UNEVEN, "input")
    assert found["lookup"] == ([0, 0, 0, 0], [1, 2, 1, 3]) and found["far"] == ([4, 4, 4, 4], [5, 6, 5, 6])
    assert found["one"] == ([16.5, 16.5, 16.5, 16.5], [17.5, 16.5, 17.5, 16.5])
    assert found["ids"] == alike(6, 17.5)
    both = spans(UNEVEN, "input", "dense_sync")
    assert both["one"] == ([14, 15, 14, 15], [15, 15, 15, 15]) and both["ids"] == alike(6, 15) and both["sync"] == alike(14.25, 16.5)


def test_collectives_at_once_share_a_link_and_hold_up_only_what_needs_them() -> None:
    found = spans(UNEVEN, "collectives")
    assert found["near"] == ([4, 4, 5, 5], [5, 5, 6, 6]) and found["far"] == ([3, 5, 3, 5], [4, 7, 4, 7])
    assert found["dense.forward"] == ([5, 7, 6, 7], [8, 10, 9, 10])
    assert found["sync"] == alike(16, 17.5)
    assert found["one"] == ([15, 16, 15, 16], [18.5, 16, 18.5, 16])  # issued at 15, behind the gradients on its link
    assert found["dense.optimizer"] == ([19.5, 17.5, 19.5, 17.5], [20.5, 18.5, 20.5, 18.5])
    apart = replace(UNEVEN, steps=tuple(replace(s, blocks=s.is_collective) for s in UNEVEN.steps))
    apart = replace(apart, steps=tuple(sorted(apart.steps, key=lambda s: s.kind == "update")))
    assert spans(apart, "collectives", "host_tier", "bottom") == spans(replace(UNEVEN, steps=apart.steps))


def test_messages_of_collectives_at_once_follow_one_another_on_a_cpu() -> None:
    """A message takes 1 ms. Rank 0 sends its message of `near` at 6, and then that of `far`, though `near` waits for rank 1."""
    found = spans(UNEVEN, "collectives", message_us=1000.0)
    assert found["ids"] == alike(0, 5) and found["lookup"] == ([5, 5, 5, 5], [6, 7, 6, 8])
    assert found["near"] == ([7, 7, 8, 8], [9, 9, 10, 10]) and found["far"] == ([7, 9, 7, 9], [9, 12, 9, 12])
    assert found["dense.forward"] == ([9, 12, 10, 12], [12, 15, 13, 15])
    on_gpu = spans(UNEVEN, "collectives", kind="cuda", message_us=1000.0)
    assert on_gpu["far"][0] == [max(on_gpu["lookup"][1][rank] for rank in group) for group in ((0, 2), (1, 3)) * 2]


@pytest.mark.parametrize(
    ("overlaps", "copied", "ids", "lookup"),
    [
        ((), (0.5, 1.5), 1.5, 3.525),
        (("copy",), (0.0, 1.0), 0.5, 2.525),
        (("input",), (0.0, 1.0), None, 0.5),
        (("host",), (0.0, 1.0), 1.0, 3.025),  # the host begins while the device is at the iteration before
    ],
)
def test_a_gpus_host_begins_an_iteration_copies_and_runs_ahead(
    overlaps: tuple[str, ...], copied: tuple[float, float], ids: float | None, lookup: float
) -> None:
    """0.5 ms before all steps; 10 MB over half of 20 GB/s; NCCL's all-to-all begins in 25 us. Launches of 0.1 ms are ahead of it all."""
    steps = replace(UNEVEN, steps=(Step("copy", "host_to_device", "input", (10e6,)), *UNEVEN.steps))
    software = {"host_link_efficiency": 0.5, "iteration_overhead_ms": 0.5, "launch_overhead_us": 100.0}
    found = spans(steps, *overlaps, kind="cuda", **software)
    assert found["copy"] == alike(*copied)
    assert ids is None or found["ids"] == alike(ids, round(ids + 2.025, 9))
    assert found["lookup"] == ([lookup] * 4, [lookup + ms for ms in (1, 2, 1, 3)])
    assert "copy" not in spans(steps, *overlaps, **software)


def test_a_host_that_reads_sizes_waits_for_them_and_then_issues_one_step_after_another() -> None:
    """Launches of 2 ms, of which the first is the exchange's: 2 to 4.025. The look-up is issued by 6.025, the next exchange by 8.025. The
    slowest look-up ends at 9.025, and its exchange at 10.05, after the launch of the next. The last of ten is issued at 22.025.
    """
    steps = replace(UNEVEN, steps=(replace(UNEVEN.steps[0], role=SIZES), *UNEVEN.steps[1:]))
    found = spans(steps, kind="cuda", launch_overhead_us=2000.0)
    assert found["ids"] == alike(2, 4.025)
    assert found["lookup"] == ([6.025] * 4, [7.025, 8.025, 7.025, 9.025])
    assert found["near"][0] == [8.025, 8.025, 9.025, 9.025] and found["far"][0] == [10.05, 10.05, 10.05, 10.05]
    assert found["dense.forward"][0] == [12.025, 12.075, 12.025, 12.075]  # when it is issued, or, behind 2 ms of `far`, later
    on = cluster(2, 2, kind="cuda", cross_us=0.0, intra_us=0.0)
    whole = place(steps, on, profile(launch_overhead_us=2000.0))
    assert whole.host_ms.tolist() == pytest.approx([22.025] * 4)
    ahead = place(UNEVEN, on, profile(launch_overhead_us=9000.0))
    assert ahead.host_ms.tolist() == pytest.approx([90.0] * 4) and ahead.ends.tolist() == pytest.approx([90.0] * 4)


def test_a_kernel_takes_its_time_of_the_device_beside_its_work() -> None:
    """0.1 ms of each step that is no collective."""
    found = spans(UNEVEN, kernel_us=100.0)
    assert found["ids"] == alike(0, 2) and found["lookup"] == ([2, 2, 2, 2], [3.1, 4.1, 3.1, 5.1])
    assert found["update"][1][0] - found["update"][0][0] == pytest.approx(1.1)


def test_a_rank_that_reads_its_ids_exchanges_none() -> None:
    found = spans(UNEVEN, exchanges_ids=False)
    assert "ids" not in found and found["lookup"] == ([0, 0, 0, 0], [1, 2, 1, 3])


def alone(step: Step, ms: float, *after: str) -> Step:
    """`ms` between the ranks of two hosts."""
    return replace(step, bytes_of_rank=(20e6 * ms,), groups=((0, 1),), after=after)


PAIR = Steps(
    2,
    100,
    (
        alone(Step("ids", "all_to_all", "input", ()), 1),
        Step("lookup", "lookup", "forward", (LOOKED_UP_A_MS,), after=("ids",)),
        alone(Step("rows", "all_to_all", "forward", ()), 2, "lookup"),
        dense("forward", 3, "rows"),
        dense("backward", 6, "dense.forward"),
        Step("sync", "all_reduce", "backward", (30e6,), ((0, 1),), after=("dense.backward",), role=DENSE_SYNC),  # 3 ms, three buckets
        alone(Step("gradients", "all_to_all", "backward", ()), 2, "dense.backward"),
        Step("update", "update", "backward", (UPDATED_A_MS,), after=("gradients",)),
        Step("dense.optimizer", "update", "optimizer", (MOVED_A_MS,), after=("sync",), role=DENSE),
    ),
)
#: Of the forward's 3 ms the bottom MLP has 1, of the backward's 6 it has 2.
LAYERS = (DenseLayer(1.0, 10_000, 10_000, ahead=True), DenseLayer(1.0, 10_000, 20_000))
WORK = workload(100, layers=LAYERS, activation_bytes_per_sample=0.0)


def of_pair(*overlaps: str, **software: float) -> dict[str, tuple[float, float]]:
    on = cluster(2, 1, kind="cpu", cross_us=0.0, intra_us=0.0)
    told = profile(*overlaps, dense_bucket_mib=BUCKET_MIB, **{"launch_overhead_us": 0.0} | software)
    return {e.step.name: (round(e.start_ms, 9), round(e.end_ms, 9)) for e in schedule(PAIR, on, told, WORK)}


@pytest.mark.parametrize(
    ("overlaps", "changed"),
    [
        ((), {}),
        (("dense_sync",), {"gradients": (13, 15), "update": (15, 16), "sync": (11, 16), "dense.optimizer": (16, 17)}),
        (("collectives",), {"gradients": (13, 18)}),
    ],
)
def test_a_pair_of_ranks(overlaps: tuple[str, ...], changed: dict[str, tuple[float, float]]) -> None:
    """Overlapped gradients begin at 11: 13 is the backward's end, and two of three buckets are sent by then. Rows go first, 13 to 15."""
    serial = {
        "ids": (0, 1),
        "lookup": (1, 2),
        "rows": (2, 4),
        "dense.forward": (4, 7),
        "dense.backward": (7, 13),
        "sync": (13, 16),
        "gradients": (16, 18),
        "update": (18, 19),
        "dense.optimizer": (19, 20),
    }
    assert of_pair(*overlaps) == serial | changed


@pytest.mark.parametrize(
    ("more", "rest", "ahead", "gradients"),
    [((), (6, 10), (10, 12), (10, 17)), (("weight_gradients",), (6, 8), (8, 12), (8, 17))],
)
def test_the_bottom_mlp_computes_beside_exchanges(
    more: tuple[str, ...], rest: tuple[float, float], ahead: tuple[float, float], gradients: tuple[float, float]
) -> None:
    """Of the weights' gradients, half of each layer's 6 ms, those of the rest too where they come last."""
    found = of_pair("bottom", *more)
    assert (found["rows"], found["dense.forward.ahead"], found["dense.forward.rest"]) == ((2, 4), (2, 3), (4, 6))
    assert (found["dense.backward.rest"], found["dense.backward.ahead"]) == (rest, ahead)
    assert (found["sync"], found["gradients"], found["update"]) == ((12, 15), gradients, (17, 18))


def test_ids_that_fill_the_link_end_when_it_has_carried_them() -> None:
    """20 ms from 3 on, in what 2 ms of rows leave."""
    on = cluster(2, 1, kind="cpu", cross_us=0.0, intra_us=0.0)
    long = replace(PAIR, steps=(replace(PAIR.steps[0], bytes_of_rank=(400e6,)), *PAIR.steps[1:]))
    found = {e.step.name: e.end_ms for e in schedule(long, on, profile("input", launch_overhead_us=0.0), WORK)}
    assert found["ids"] == pytest.approx(25.0) and found["dense.optimizer"] == pytest.approx(19.0)


def test_one_host_has_one_kind_of_link() -> None:
    whole = place(PAIR, cluster(1, 2, kind="cpu"), profile(), WORK)
    assert {p.step.name: (p.stream, p.link) for p in whole.placed if p.step.is_collective} == {
        "ids": ("input", "far"), "rows": ("across", "far"), "sync": ("dense_sync", "far"), "gradients": ("across", "far"),
    }  # fmt: skip


def test_each_product_of_a_layer_is_started_by_the_host() -> None:
    """0.1 ms a step, and one a product: 2 forward, 4 backward."""
    found = of_pair(launch_overhead_us=100.0)
    assert found["dense.forward"] == (4.6, 7.6) and found["dense.backward"] == (8.1, 14.1)


def test_the_order_in_which_steps_are_issued() -> None:
    def names(*overlaps: str) -> list[str]:
        return [step.name for step in ordered(PAIR.steps, profile(*overlaps), WORK)]

    given = [step.name for step in PAIR.steps]
    assert names() == names("copy") == names("host_tier") == given
    assert names("dense_sync") == [*given[:5], "gradients", "update", "sync", "dense.optimizer"]
    assert names("collectives") == [*given[:7], "update", "dense.optimizer"]
    assert names("collectives", "dense_sync") == [*given[:5], "gradients", "sync", "update", "dense.optimizer"]
    assert names("input") == [*given[1:], "ids"]
    apart = ["dense.forward.ahead", "dense.forward.rest", "dense.backward.rest", "dense.backward.ahead"]
    assert names("bottom") == [*given[:3], *apart, *given[5:]]
    assert [step.name for step in ordered(PAIR.steps, profile("bottom"), None)] == given  # what the layers are is not known
    assert [step.name for step in ordered(PAIR.steps, profile("bottom"), replace(WORK, layers=LAYERS[1:]))] == given
    unsynced = tuple(replace(step, after=()) if step.name == "dense.optimizer" else step for step in PAIR.steps)
    assert [step.name for step in ordered(unsynced, profile("dense_sync"), WORK)][-1] == "sync"


def test_what_steps_wait_for_when_they_are_cut_and_moved() -> None:
    after = {step.name: step.after for step in ordered(PAIR.steps, profile("bottom", "input"), WORK)}
    assert after == {
        "lookup": (),  # its ids came with the batch before
        "rows": ("lookup",),
        "dense.forward.ahead": (),
        "dense.forward.rest": ("rows", "dense.forward.ahead"),
        "dense.backward.rest": ("dense.forward.rest",),
        "dense.backward.ahead": ("dense.backward.rest",),
        "sync": ("dense.backward.rest",),
        "gradients": ("dense.backward.rest",),
        "update": ("gradients", "dense.backward.ahead"),
        "dense.optimizer": ("sync", "dense.backward.ahead"),
        "ids": ("rows",),
    }
    cut = {step.name: (step.part, step.flops) for step in ordered(PAIR.steps, profile("bottom"), WORK) if step.part}
    assert cut["dense.forward.ahead"] == ("ahead", 0.0) and cut["dense.forward.rest"] == ("rest", 3 * FLOPS_A_MS)


@pytest.mark.parametrize(
    ("role", "phase", "overlaps", "beside"),
    [
        (HOST_TIER, "forward", ("host_tier",), True),
        (HOST_TIER, "forward", ("dense_sync",), False),
        (MODULE_SYNC, "backward", ("dense_sync", "bottom"), False),
        (DENSE, "forward", ("bottom",), True),
        (DENSE, "forward", ("host_tier", "input"), False),
    ],
)
def test_what_a_profile_names_runs_beside_compute(role: str, phase: str, overlaps: tuple[str, ...], beside: bool) -> None:
    """An exchange of 2 ms, and 3 ms of compute that do not wait for it."""
    steps = (alone(Step("exchange", "all_to_all", phase, (), role=role), 2), replace(dense("forward", 3), role="module"))
    on = cluster(2, 1, kind="cpu", cross_us=0.0)
    whole = place(Steps(2, 100, steps), on, profile(*overlaps, launch_overhead_us=0.0))
    assert whole.ends.tolist() == ([3.0] if beside else [5.0])
