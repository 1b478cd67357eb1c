"""Training is right without anything that only makes ranks on CPUs fast, and its bits are the same."""

from __future__ import annotations

import os
from unittest.mock import patch

import torch
from torchrec.distributed.sharding.dp_sharding import DpPooledEmbeddingDist

from recsys_lab.base.environment import PLAIN, POOLED_EXCHANGE, WORDS
from recsys_lab.executor.collection import ShardedBags
from recsys_lab.executor.cpu.id_exchange import IdExchange
from recsys_lab.executor.cpu.threads import OWN
from recsys_lab.executor.recorded import register, shares_memory
from recsys_lab.executor.row_exchange import PooledExchanges
from recsys_lab.executor.times import Timed
from recsys_lab.kernels.cpu import nontemporal_stores, products, row_prefetch
from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample, samples, train_unsharded
from tests.executor.sharded import build, here, trained
from tests.executor.test_sharded_equals_unsharded import COLUMNS_CUT, DENSE, MIXED, ROWS, SCHEMES, TABLES, check
from tests.ranks import run_ranks

STEPS, OPTIMIZER = 5, "row_wise_adagrad"
WAYS = ((True, "recorded"), (False, "shared_memory"))
CASES = [*({"*": scheme} for scheme in SCHEMES), MIXED]
register()


def train(tables: tuple[Table, ...], batches: list[Sample], plain: bool) -> list[Outcome]:
    os.environ |= PLAIN if plain else {POOLED_EXCHANGE: "own"}
    assert shares_memory() is not plain
    outcomes = []
    for force in CASES:
        sharded = build(tables, here(tables, force), OPTIMIZER, DENSE)
        (part,) = (module for module in sharded.module.modules() if isinstance(module, ShardedBags))
        dists = [one.inner if isinstance(one, Timed) else one for one in part.output_dists]
        exchanges = [one for one in dists if not isinstance(one, DpPooledEmbeddingDist)]  # replicas exchange no rows
        assert all(isinstance(one, PooledExchanges) is not plain for one in exchanges)
        with patch.object(IdExchange, "start", autospec=True, side_effect=IdExchange.start) as start:
            outcomes.append(trained(sharded, tables, batches))
        assert start.called is not plain
    if plain:
        for cached in (products._answer, row_prefetch._answers, nontemporal_stores._answer):
            cached.cache_clear()  # a rank is forked from a process that may have answers
        assert not (products.by_torch() or products.by_tiles() or products.by_transposing())
        assert not (row_prefetch.read_first(parts=True) or row_prefetch.second_level())
        large = torch.empty(nontemporal_stores.LARGE // 256, 64)
        assert not nontemporal_stores.nontemporal_stores((large,), 64)
    return outcomes


def test_training_without_what_is_only_fast_is_right_and_the_same_bits() -> None:
    batches = samples(TABLES, STEPS, ROWS, DENSE)
    plain, fast = (run_ranks(train, 2, 2, TABLES, batches, off, backend=backend) for off, backend in WAYS)
    reference = train_unsharded(TABLES, batches, OPTIMIZER, DENSE)
    for case, force in enumerate(CASES):
        check([rank[case] for rank in plain], reference, f"{force}", force.get("*") in COLUMNS_CUT, OPTIMIZER)
        for slow, quick in zip(plain, fast):
            for name in ("tables", "dense", "dense_grads"):
                ours, theirs = getattr(slow[case], name), getattr(quick[case], name)
                assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours), (force, name)


def test_every_variable_that_only_makes_cpus_fast_has_its_off_value() -> None:
    assert set(PLAIN) == set(WORDS) - {"RECSYS_LAB_KERNELS", "RECSYS_LAB_DEVICE"} | {OWN}
    assert all(PLAIN[variable] == WORDS[variable][0] for variable in PLAIN if variable != OWN)
