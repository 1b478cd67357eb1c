"""Ids travel as TorchRec's do: the same collectives, and the same ids arrive at each shard."""

from __future__ import annotations

import os
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torchrec.distributed.types import ShardingEnv
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.environment import POOLED_EXCHANGE, TORCHREC
from recsys_lab.executor.collection import shard_collection
from recsys_lab.executor.cpu.id_exchange import order_of
from recsys_lab.executor.formats import wire_formats
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.kernels import native
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.executor.reference import bags
from tests.plan.plans import TABLES, TORCHREC_SCHEMES, plan
from tests.ranks import run_ranks

register()  # before a rank joins its process group
SAMPLES = 5
#: Every scheme alone, and all of them side by side.
PLANS = [(scheme,) for scheme in TORCHREC_SCHEMES] + [TORCHREC_SCHEMES, TORCHREC_SCHEMES[::-1]]


def batch(tables: tuple[Table, ...], rank: int, turned: bool) -> KeyedJaggedTensor:
    """Bags of up to four ids, some empty; the last feature has none on the first rank."""
    draw = np.random.default_rng(rank)
    features = [(feature, table.rows) for table in tables for feature in table.features]
    features = features[::-1] if turned else features
    lengths = draw.integers(0, 5, (len(features), SAMPLES))
    lengths[-1] *= rank > 0
    ids = np.concatenate([draw.integers(0, rows, of.sum()) for (_, rows), of in zip(features, lengths)])
    sizes = torch.from_numpy(lengths.astype(np.int32).ravel())
    return KeyedJaggedTensor([feature for feature, _ in features], torch.from_numpy(ids), lengths=sizes, stride=SAMPLES)


def as_dict(one: KeyedJaggedTensor) -> dict:
    return {"keys": one.keys(), "stride": one.stride(), "lengths": one.lengths(), "offsets": one.offsets().int(), "ids": one.values()}


def arrived(hosts: int, ranks_per_host: int) -> list[tuple]:
    """For each plan and order of features, by whether TorchRec laid them out: what came, and what was recorded."""
    found = []
    for schemes in PLANS:
        made = plan(schemes, hosts, ranks_per_host)
        parameters = to_torchrec(made.placements, ranks_per_host, "cpu")
        env, cpu = ShardingEnv.from_process_group(dist.group.WORLD), torch.device("cpu")
        configs = bags(TABLES, torch.device("meta")).embedding_bag_configs()
        for turned in (False, True):
            part, ways = shard_collection(configs, parameters, env, cpu, {}, wire_formats(Precision("fp32"))), []
            for exchange in ("own", TORCHREC):
                start_recording()
                with patch.dict(os.environ, {POOLED_EXCHANGE: exchange}):
                    pending = part.start_input_dist(batch(TABLES, dist.get_rank(), turned))
                    pending.send()
                    came = pending.wait()
                seen = [(one.kind, one.group, one.bytes) for one in stop_recording()]
                ways.append(([as_dict(one) for one in came], seen))
            found.append((schemes, turned, *ways))
    return found


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (1, 2), (2, 2), (4, 1)])
def test_each_shard_gets_the_ids_that_torchrec_sends_it_through_the_same_collectives(hosts: int, ranks_per_host: int) -> None:
    for of_rank in run_ranks(arrived, hosts, ranks_per_host, hosts, ranks_per_host, backend="recorded"):
        assert len(of_rank) == 2 * len(PLANS)
        for schemes, turned, (ours, our_collectives), (theirs, their_collectives) in of_rank:
            what = f"{schemes}, turned: {turned}"
            assert our_collectives == their_collectives, what
            assert len(ours) == len(theirs), what
            for our_part, their_part in zip(ours, theirs):
                assert (our_part["keys"], our_part["stride"]) == (their_part["keys"], their_part["stride"]), what
                assert all(torch.equal(our_part[name], their_part[name]) for name in ("lengths", "offsets", "ids")), what


@st.composite
def cut_batches(draw: st.DrawFn) -> tuple[list[list[list[int]]], list[tuple[int, list[int]]]]:
    """(ids of each feature and sample, cuts: a feature and where its rows are cut)."""
    rows, samples = 12, draw(st.integers(0, 4))
    of_sample = st.lists(st.integers(0, rows - 1), max_size=4)
    features = draw(st.lists(st.lists(of_sample, min_size=samples, max_size=samples), min_size=1, max_size=3))
    places = st.lists(st.integers(0, rows), max_size=4).map(sorted)
    cuts = draw(st.lists(st.tuples(st.integers(0, len(features) - 1), places), min_size=1, max_size=5))
    return features, [(feature, [0, *at, rows]) for feature, at in cuts]


@given(cut_batches(), st.integers(1, 3))
def test_each_shard_gets_the_ids_in_its_rows(example: tuple, threads: int) -> None:
    """Blocks of any size, also empty ones."""
    features, cuts = example
    samples, ids = len(features[0]), torch.tensor([i for of in features for bag in of for i in bag], dtype=torch.int64)
    lengths = torch.tensor([len(bag) for of in features for bag in of], dtype=torch.int32)
    blocks = [(feature, start, stop) for feature, at in cuts for start, stop in zip(at, at[1:])]
    firsts = np.cumsum([0] + [len(at) - 1 for _, at in cuts])
    how = (
        torch.tensor([(feature, first, len(at) - 1) for (feature, at), first in zip(cuts, firsts.tolist())]),
        torch.tensor([(shard, start, stop) for shard, (_, start, stop) in enumerate(blocks)]),
        torch.arange(1, len(blocks) + 1),
    )
    to_lengths = torch.empty(len(blocks) * samples, dtype=torch.int32)
    to_ids, sizes = torch.empty(len(cuts) * len(ids), dtype=torch.int64), torch.empty(len(blocks), 3, dtype=torch.int64)
    with patch.object(native, "FEW_ELEMENTS", 0), patch.object(torch, "get_num_threads", lambda: threads):
        native.ids_to_shards(lengths, ids, samples, *how, to_lengths, to_ids, sizes)
    place = 0
    for shard, (feature, start, stop) in enumerate(blocks):
        own = [[i - start for i in bag if start <= i < stop] for bag in features[feature]]
        assert to_lengths.view(len(blocks), samples)[shard].tolist() == [len(bag) for bag in own]
        wanted = [i for bag in own for i in bag]
        assert to_ids[place : place + len(wanted)].tolist() == wanted
        assert sizes[shard].tolist() == [samples, len(wanted), samples]
        place += len(wanted)


def test_lengths_that_do_not_add_up_to_the_ids_are_refused() -> None:
    lengths, ids = torch.tensor([1, 2], dtype=torch.int32), torch.tensor([4, 5])
    to = (torch.empty(2, dtype=torch.int32), torch.empty(2, dtype=torch.int64), torch.empty(1, 3, dtype=torch.int64))
    with pytest.raises(IndexError, match="lengths add up to 3, and there are 2 ids"):
        native.ids_to_shards(lengths, ids, 2, torch.tensor([[0, 0, 1]]), torch.tensor([[0, 0, 9]]), torch.tensor([1]), *to)


def test_samples_of_the_ranks_at_one_place_of_their_hosts_come_together() -> None:
    assert order_of(6, 1).tolist() == [0, 1, 2, 3, 4, 5]
    assert order_of(6, 2).tolist() == [0, 3, 1, 4, 2, 5]  # two hosts of three
