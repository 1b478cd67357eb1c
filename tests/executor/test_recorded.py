"""The recording backend: every entry point is seen, results are gloo's own, and nothing is seen when it is off."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from recsys_lab.executor.recorded import named, register, start_recording, stop_recording
from recsys_lab.train.memory import watch
from recsys_lab.train.wire import wire_bytes
from tests.ranks import RankFailed, run_ranks

register()
WORLD = (0, 1, 2, 3)
pytestmark = pytest.mark.timeout(90)


def every_entry_point() -> dict[str, tuple[torch.Tensor, list[tuple[str, tuple[int, ...], int]]]]:
    """By name: what came out on this rank, and what was recorded."""
    warnings.simplefilter("ignore")
    rank, world = dist.get_rank(), dist.get_world_size()
    own = torch.arange(8.0) + 10 * rank

    def listed(call) -> torch.Tensor:
        out = [torch.empty(8) for _ in range(world)]
        call(out)
        return torch.cat(out)

    def into(size: int, call, dtype=torch.float32) -> torch.Tensor:
        out = torch.empty(size, dtype=dtype)
        call(out)
        return out

    def changed(call) -> torch.Tensor:
        tensor = own.clone()
        call(tensor)
        return tensor

    def objects(call) -> torch.Tensor:
        out: list = [None] * world
        call(out)
        return torch.tensor([float(o) for o in out if o is not None])

    def uneven() -> torch.Tensor:
        sent = [1, 2, 3, 2]
        return into(sent[rank] * world, lambda out: dist.all_to_all_single(out, own, [sent[rank]] * world, sent))

    def waited_late() -> torch.Tensor:
        first, second = own.clone(), own.clone() * 2
        works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, async_op=True)]
        for work in reversed(works):
            work.wait()
        return torch.cat([first, second])

    def gradients() -> torch.Tensor:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(8, 3))
        stop_recording()  # its own start-up
        start_recording()
        model(own.unsqueeze(0)).sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    calls = {
        "all_reduce": lambda: changed(dist.all_reduce),
        "all_reduce_max": lambda: changed(lambda t: dist.all_reduce(t, dist.ReduceOp.MAX)),
        "async": waited_late,
        "all_to_all_single": lambda: into(8, lambda out: dist.all_to_all_single(out, own)),
        "all_to_all_uneven": uneven,
        "all_to_all": lambda: torch.cat(_all_to_all(own, world)),
        "all_gather": lambda: listed(lambda out: dist.all_gather(out, own)),
        "all_gather_into_tensor": lambda: into(8 * world, lambda out: dist.all_gather_into_tensor(out, own)),
        "reduce_scatter": lambda: into(2, lambda out: dist.reduce_scatter(out, list(own.split(2)))),
        "reduce_scatter_tensor": lambda: into(2, lambda out: dist.reduce_scatter_tensor(out, own.clone())),
        "reduce_scatter_async": lambda: into(2, lambda out: dist.reduce_scatter_tensor(out, own.clone(), async_op=True).wait()),
        "broadcast": lambda: changed(lambda t: dist.broadcast(t, 2)),
        "all_gather_object": lambda: objects(lambda out: dist.all_gather_object(out, rank)),
        "functional_all_to_all": lambda: functional.all_to_all_single(own, None, None, dist.group.WORLD) + 0,
        "functional_reduce_scatter": lambda: functional.reduce_scatter_tensor(own, "sum", 0, dist.group.WORLD) + 0,
        "functional_all_gather": lambda: functional.all_gather_tensor(own, 0, dist.group.WORLD) + 0,
        "functional_all_reduce": lambda: functional.all_reduce(own, "sum", dist.group.WORLD) + 0,
        "half": lambda: into(8, lambda out: dist.all_to_all_single(out, own.half()), torch.float16),
        "gradients": gradients,
    }
    entries = {}
    for name, call in calls.items():
        start_recording()
        value = call()
        recorded = stop_recording()
        assert all(0 < one.ms < 60_000 for one in recorded)
        entries[name] = (value, [(one.kind, one.group, one.bytes) for one in recorded])
    return entries


def _all_to_all(own: torch.Tensor, world: int) -> list[torch.Tensor]:
    out = [torch.empty(2) for _ in range(world)]
    dist.all_to_all(out, list(own.split(2)))
    return out


def test_every_entry_point_is_recorded_and_gives_what_gloo_gives() -> None:
    recorded = run_ranks(every_entry_point, 2, 2, backend="recorded")
    plain = run_ranks(every_entry_point, 2, 2, backend="gloo")
    for rank in range(4):
        for name, (value, _) in recorded[rank].items():
            assert torch.equal(value, plain[rank][name][0]), f"{name}, rank {rank}"
            assert plain[rank][name][1] == []
    expected = {
        "all_reduce": [("all_reduce", 32)],
        "all_reduce_max": [("all_reduce", 32)],
        "async": [("all_reduce", 32)] * 2,
        "all_to_all_single": [("all_to_all", 32)],
        "all_to_all_uneven": [("all_to_all", 32)],
        "all_to_all": [("all_to_all", 32)],
        "all_gather": [("all_gather", 32)],
        "all_gather_into_tensor": [("all_gather", 32)],
        "reduce_scatter": [("reduce_scatter", 32)],
        "reduce_scatter_tensor": [("reduce_scatter", 32)],
        "reduce_scatter_async": [("reduce_scatter", 32)],
        "broadcast": [("broadcast", 32)],
        "functional_all_to_all": [("all_to_all", 32)],
        "functional_reduce_scatter": [("reduce_scatter", 32)],
        "functional_all_gather": [("all_gather", 32)],
        "functional_all_reduce": [("all_reduce", 32)],
        "half": [("all_to_all", 16)],
        "gradients": [("all_reduce", 4 * (8 * 3 + 3))],
    }
    for rank in range(4):
        kinds = {name: [(kind, size) for kind, _, size in entries] for name, (_, entries) in recorded[rank].items()}
        assert {group for _, entries in recorded[rank].values() for _, group, _ in entries} == {WORLD}
        assert [kind for kind, _ in kinds.pop("all_gather_object")] == ["all_gather"] * 2
        assert kinds == expected


def groups_and_switches() -> tuple[list, list, list, list, list]:
    rank = dist.get_rank()
    hosts = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    alone = [dist.new_group([one]) for one in range(4)][rank]
    start_recording()
    dist.all_reduce(torch.ones(2), group=hosts[rank // 2])
    dist.all_reduce(torch.ones(3), group=peers[rank % 2])
    dist.all_reduce(torch.ones(5), group=alone)
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.empty(1), 0)
    of_groups = [(one.kind, one.group, one.bytes) for one in stop_recording()]
    dist.all_reduce(torch.ones(2))
    after = stop_recording()
    start_recording(limit=2)
    for _ in range(5):
        dist.all_reduce(torch.ones(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        limited = stop_recording()
    start_recording()
    with named("outer"):
        dist.all_reduce(torch.ones(2))
        with named("inner"):
            dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(2))
    names = [one.name for one in stop_recording()]
    return of_groups, after, limited, [str(w.message) for w in caught], names


def test_groups_limits_names_and_off() -> None:
    for rank, (of_groups, after, limited, warned, names) in enumerate(run_ranks(groups_and_switches, 2, 2, backend="recorded")):
        host, peers = ((0, 1), (2, 3))[rank // 2], ((0, 2), (1, 3))[rank % 2]
        assert of_groups == [("all_reduce", host, 8), ("all_reduce", peers, 12)]  # none for the group of one, barrier, send
        assert after == [] and len(limited) == 2
        assert warned == ["3 collectives beyond the limit of 2 were not recorded"]
        assert names == ["outer", "inner", None]


def memory_while_recording() -> float:
    """MB that this process has more after six sums of 32 MB each, one after another, all of them recorded."""
    watch(torch.device("cpu"))
    dist.all_reduce(torch.ones(8 << 20))
    baseline = watch(torch.device("cpu"))
    assert baseline is not None
    start_recording()
    for _ in range(6):
        dist.all_reduce(torch.ones(8 << 20))
    now = watch(torch.device("cpu"))
    assert now is not None and len(stop_recording()) == 6
    return (now - baseline) / 1e6


def test_what_is_recorded_holds_no_tensors() -> None:
    assert max(run_ranks(memory_while_recording, 1, 2, backend="recorded")) < 70  # all of them: 200


def with_a_peer_that_dies(path: str) -> None:
    if dist.get_rank() == 1:
        os._exit(1)
    start_recording()
    try:
        dist.all_reduce(torch.ones(1_000_000))
    except RuntimeError as error:
        Path(path).write_text(f"{len(stop_recording())} recorded; {error}")


def test_an_error_of_gloo_comes_through_while_recording(tmp_path: Path) -> None:
    with pytest.raises(RankFailed):
        run_ranks(with_a_peer_that_dies, 1, 2, str(tmp_path / "told"), backend="recorded", timeout_s=20)
    message = (tmp_path / "told").read_text()
    assert message.startswith("1 recorded; ") and ("Connection" in message or "peer" in message)


@pytest.mark.parametrize(
    ("kind", "rank", "expected"),
    [
        ("all_to_all", 0, (100.0, 200.0)),
        ("all_reduce", 0, (600.0, 0.0)),  # its neighbour in the ring is on its host
        ("all_reduce", 1, (0.0, 600.0)),
        ("reduce_scatter", 1, (0.0, 600.0)),
        ("all_gather", 3, (0.0, 1200.0)),
        ("broadcast", 0, (300.0, 0.0)),
        ("scatter", 0, (100.0, 200.0)),
        ("gather", 3, (100.0, 200.0)),
        ("reduce", 0, (0.0, 0.0)),
    ],
)
def test_bytes_on_the_wire_by_link(kind: str, rank: int, expected: tuple[float, float]) -> None:
    assert wire_bytes(kind, WORLD, 400, rank, 2) == expected


def test_wire_bytes_depend_on_backend_and_group() -> None:
    assert wire_bytes("reduce_scatter", WORLD, 400, 1, 2, backend="nccl") == (0.0, 300.0)
    assert wire_bytes("all_reduce", (0,), 400, 0, 2) == (0.0, 0.0)
    assert wire_bytes("all_reduce", (0, 2), 400, 2, 2) == (0.0, 400.0)
    host_egress = sum(wire_bytes("all_to_all", tuple(range(8)), 16e6, r, 2)[1] for r in (0, 1))
    assert host_egress == 2 * (8 - 2) * 16e6 / 8  # R (N - R) S / N
