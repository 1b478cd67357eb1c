"""Of all that the ranks hold, each element is saved by exactly one of them; what is copied into the shards is what is trained on."""

from __future__ import annotations

import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.precision import Precision
from tests.executor.reference import LR, Concat, Sample, samples
from tests.executor.sharded import build, dense_optimizer_of, gathered, here, step
from tests.executor.test_sharded_equals_unsharded import DENSE, TABLES
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES
from tests.ranks import run_ranks


def written_shards(cases: list[dict[str, str]]) -> list[list[tuple[str, int, int, int, int]]]:
    """For each case the extents that this rank saves."""
    shards = []
    for force in cases:
        sharded = build(TABLES, here(TABLES, force), "row_wise_adagrad", DENSE)
        pieces = sharded.table_shards()
        saved = [s.held for s in pieces if s.writes]
        shards.append([(s.table, s.row_start, s.row_stop, s.col_start, s.col_stop) for s in saved])
    return shards


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (2, 2)])
def test_each_element_is_saved_by_one_rank(hosts: int, ranks_per_host: int) -> None:
    cases = [{"*": scheme} for scheme in SCHEMES]
    for force, ranks in zip(cases, zip(*run_ranks(written_shards, hosts, ranks_per_host, cases))):
        times = {t.name: torch.zeros(t.rows, t.dim) for t in TABLES}
        for table, r0, r1, c0, c1 in (extent for rank in ranks for extent in rank):
            times[table][r0:r1, c0:c1] += 1
        assert all(counts.eq(1).all() for counts in times.values()), force


def resumed(batches: list[Sample]) -> tuple[dict, dict]:
    """Tables after all batches: straight through, and with all that is held copied into a freshly built model halfway."""
    straight = build(TABLES, here(TABLES, {"*": "row_wise"}), "adam", DENSE)
    dense = dense_optimizer_of(straight)
    for batch in batches[:2]:
        step(straight, dense, batch)
    other = build(TABLES, here(TABLES, {"*": "row_wise"}), "adam", DENSE)
    with torch.no_grad():
        for into, source in zip(other.table_shards(), straight.table_shards()):
            into.weights.write(source.weights.read())
            for name in source.state:
                into.state[name].copy_(source.state[name])
        for (_, into), (_, source) in zip(other.dense_parameters(), straight.dense_parameters()):
            into.copy_(source)
    other.sparse_optimizer.steps = straight.sparse_optimizer.steps
    other_dense = torch.optim.SGD([p for _, p in other.dense_parameters()], lr=LR)
    for batch in batches[2:]:
        step(straight, dense, batch)
        step(other, other_dense, batch)
    return gathered(straight, TABLES)[0], gathered(other, TABLES)[0]


def test_copied_shards_go_on_bit_for_bit() -> None:
    for straight, other in run_ranks(resumed, 1, 2, samples(TABLES, 4, 12, DENSE)):
        assert all(torch.equal(straight[name], other[name]) for name in straight)


def other_formats() -> None:
    from recsys_lab.executor.shard import shard

    model = Concat(TABLES, DENSE, torch.device("meta"))
    shard(model, here(TABLES, {}), torch.device("cpu"), ("sgd", LR, 1e-8, 0.0), Precision("eighths", forward_comm="int8"), 1)


def test_a_format_that_the_executor_cannot_send_is_refused() -> None:
    assert UserError.exit_code == 2
    with pytest.raises(
        AssertionError, match="precision.forward_comm: this executor does not send this format; given int8; allowed: fp32, fp16, bf16"
    ):
        run_ranks(other_formats, 1, 1)
