"""Rows that several ranks hold: their gradients are averaged, beside other work and over several backward passes, and copies never part."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist

from recsys_lab.executor import replicas
from recsys_lab.executor.formats import gradient_codec
from recsys_lab.executor.replicas import ReplicaGradients, ReplicaGroup
from recsys_lab.kernels import Lookups
from recsys_lab.kernels.torch_embedding import summed
from tests.executor.reference import Sample, samples
from tests.executor.sharded import How, build, dense_optimizer_of, gathered, placed, step
from tests.executor.test_flexshard import POOLED, SEQUENCES
from tests.ranks import run_ranks

ROWS, WIDTH, DENSE = 11, 3, 3
THREE: How = {"odd": (2, 5), "tiny": "data_parallel", "shared": (4, 9)}


def averages(number_format: str) -> dict[str, torch.Tensor]:
    """Dense gradients after one, two and no backward passes, of ranks that touch different rows."""
    replicas.CHUNK_ELEMENTS = 4 * WIDTH  # the rows come in three chunks
    rank = dist.get_rank()
    gradients = ReplicaGradients(ReplicaGroup(dist.group.WORLD, gradient_codec(number_format)), ROWS, WIDTH, torch.device("cpu"))
    ids = torch.tensor([0, 2 + rank, 9])

    def summed() -> torch.Tensor:
        dense, chunks = torch.zeros(ROWS, WIDTH), 0
        for rows, grads in gradients.chunks():
            assert grads.any(dim=1).all() and rows.diff().gt(0).all()
            dense[rows], chunks = grads, chunks + 1
        assert chunks in (0, 2)  # rows 0 to 3, and 8 to 10: none of the chunk between them is touched
        return dense

    by_format = {}
    gradients.start(ids, torch.full((3, WIDTH), 1.0 + rank))
    by_format["one"] = summed()
    by_format["none"] = summed()
    for factor in (1.0, 4.0, 16.0):
        gradients.start(ids, torch.full((3, WIDTH), factor))
    by_format["three"] = summed()
    gradients.start(ids, torch.ones(3, WIDTH))
    gradients.start(ids, torch.ones(3, WIDTH))
    gradients.drop()
    by_format["dropped"] = summed()
    gradients.start(ids[:1], torch.ones(1, WIDTH))
    gradients.start(ids[:0], torch.ones(0, WIDTH))
    by_format["after"] = torch.cat([grads for _, grads in gradients.chunks()])
    return by_format


def averages_in_each_format() -> list[dict[str, torch.Tensor]]:
    return [averages(number_format) for number_format in ("fp32", "bf16", "fp16")]


def test_averages_add_up_and_are_forgotten() -> None:
    """All of these numbers are exact in every format, and the sum over several passes is FP32."""

    def dense(**rows: float) -> torch.Tensor:
        expected = torch.zeros(ROWS, WIDTH)
        for row, value in rows.items():
            expected[int(row[1:])] = value
        return expected

    for averages_of_rank in itertools.chain(*run_ranks(averages_in_each_format, 1, 2)):
        assert torch.equal(averages_of_rank["one"], dense(r0=1.5, r2=0.5, r3=1.0, r9=1.5))
        assert torch.equal(averages_of_rank["three"], dense(r0=21.0, r2=10.5, r3=10.5, r9=21.0))
        assert not averages_of_rank["none"].any() and not averages_of_rank["dropped"].any()
        assert torch.equal(averages_of_rank["after"], torch.ones(1, WIDTH))


def sums_of_add_and_start(lookups: Lookups, grad: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Rows and gradients that each of the two ways gives."""
    both = []
    for _ in range(2):
        both.append(ReplicaGradients(ReplicaGroup(dist.group.WORLD, gradient_codec("fp32")), ROWS, WIDTH, torch.device("cpu")))
    both[0].add(lookups, grad)
    both[1].start(*summed(lookups, grad, WIDTH))
    added, started = ([torch.cat(parts) for parts in zip(*one.chunks())] for one in both)
    return added, started


def test_what_the_kernel_adds_up_are_the_bits_of_the_sums() -> None:
    """On two ranks, where a share is a product, and on three, where it is a quotient."""
    torch.manual_seed(0)
    bags = Lookups(torch.randint(0, 5, (40,)), torch.arange(0, 41, 4), 2, torch.tensor([0, 6]), mode="mean")
    for lookups, grad in ((bags, torch.randn(5, 2 * WIDTH)), (Lookups(torch.randint(0, ROWS, (30,))), torch.randn(30, WIDTH))):
        for ranks in (2, 3):
            for added, started in run_ranks(sums_of_add_and_start, 1, ranks, lookups, grad):
                for one, other in zip(added, started, strict=True):
                    assert torch.equal(one, other)


def long_training(pooled: list[Sample], sequences: list[Sample], steps: int) -> list[int]:
    """Trains for `steps`; `gathered` compares the copies bit for bit, weights and optimizer state. Returns rows that moved."""
    moved = []
    for tables, batches in ((POOLED, pooled), (SEQUENCES, sequences)):
        sharded = build(tables, placed(tables, THREE), "adam", DENSE)
        dense = dense_optimizer_of(sharded)
        first = gathered(sharded, tables)[0]
        for number in range(steps):
            step(sharded, dense, batches[number % len(batches)])
        after = gathered(sharded, tables)[0]
        moved.append(sum(int((first[name] != after[name]).any(dim=1).sum()) for name in after))
    return moved


def test_copies_are_the_same_bits_after_a_hundred_steps_of_adam() -> None:
    batches = [samples(tables, 10, 8, DENSE) for tables in (POOLED, SEQUENCES)]
    rows = sum(t.rows for t in POOLED)
    assert set(map(tuple, run_ranks(long_training, 2, 2, *batches, 100))) == {(rows, rows)}


def two_passes(batches: list[Sample]) -> tuple[dict, dict, dict]:
    """Tables at first, after a step that was cancelled, and after one step on the gradients of two backward passes."""
    sharded = build(POOLED, placed(POOLED, THREE), "sgd", DENSE)
    start = gathered(sharded, POOLED)[0]

    def backward(batch: Sample) -> None:
        part = batch.part(dist.get_rank(), dist.get_world_size())
        sharded.module(part.dense, part.sparse).sum().backward()

    backward(batches[0])
    sharded.sparse_optimizer.zero_grad()
    sharded.sparse_optimizer.step()
    cancelled = gathered(sharded, POOLED)[0]
    for batch in batches:
        backward(batch)
    sharded.sparse_optimizer.step()
    return start, cancelled, gathered(sharded, POOLED)[0]


def test_gradients_of_two_passes_add_up_and_a_cancelled_pass_leaves_nothing() -> None:
    batches = samples(POOLED, 2, 8, DENSE)
    start, cancelled, together = run_ranks(two_passes, 2, 2, batches)[0]
    alone = [run_ranks(two_passes, 2, 2, [batch])[0] for batch in batches]
    for name in start:
        assert torch.equal(start[name], cancelled[name])
        change = sum(after[name] - start[name] for _, _, after in alone)  # plain SGD: changes add up
        torch.testing.assert_close(together[name] - start[name], change, rtol=1e-4, atol=1e-6)
