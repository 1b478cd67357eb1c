"""Ids to tiers on the device, against the remapping in numpy; what training looked up; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.shard import shard
from recsys_lab.plan.scheme import known_schemes
from recsys_lab.schemes.tiers.execute.split import TierSplit
from recsys_lab.schemes.tiers.execute.tiered import merge_rows
from recsys_lab.schemes.tiers.placement import in_tiers
from recsys_lab.tables import Table
from recsys_lab.tables.remap import Remap
from recsys_lab.tables.tiers import TIERS
from tests.executor.reference import SEED, Concat, samples
from tests.executor.sharded import FP32, How, build, dense_optimizer_of, hot_rows_of, hottest, placed, step
from tests.ranks import RankFailed, run_ranks

CPU = torch.device("cpu")


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[Table], dict[str, dict[str, int]], dict[str, Remap], list[list[list[int]]]]:
    """Tables with 1 or 2 features, their tiers and remappings, and a batch of ids[feature][sample]."""
    tables, rows_of_tier, remaps, batch = [], {}, {}, []
    samples_here = draw(st.integers(1, 4))
    for number in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(1, 20))
        table = Table(f"t{number}", rows, 4, tuple(f"f{number}_{i}" for i in range(draw(st.integers(1, 2)))))
        a = draw(st.integers(0, rows))
        b = draw(st.integers(0, rows - a))
        hot = np.array(draw(st.permutations(range(rows)))[: a + b], np.int64)
        tables.append(table)
        rows_of_tier[table.name] = dict(zip(TIERS, (a, b, rows - a - b)))
        remaps[table.name] = Remap.of(table.name, hot, a, b, 2, rows)
        bag = st.lists(st.integers(0, rows - 1), max_size=4)
        batch += [draw(st.lists(bag, min_size=samples_here, max_size=samples_here)) for _ in table.features]
    return tables, rows_of_tier, remaps, batch


@settings(max_examples=150)
@given(splits())
def test_each_id_goes_where_the_remapping_says(drawn) -> None:
    tables, rows_of_tier, remaps, batch = drawn
    features = [(f, t.name) for t in tables for f in t.features]
    lengths = torch.tensor([[len(bag) for bag in feature] for feature in batch], dtype=torch.int32)
    ids = torch.tensor([i for feature in batch for bag in feature for i in bag], dtype=torch.int64)
    given_batch = KeyedJaggedTensor([f for f, _ in features], ids, lengths=lengths.reshape(-1))
    placed_by_row = [(t, in_tiers(t, *list(rows_of_tier[t.name].values())[:2], 1, 2)) for t in tables]
    split = TierSplit(placed_by_row, remaps, CPU)
    parts = split.parts(given_batch, *split.tier_and_row(given_batch))
    assert set(parts) == {tier for tier in TIERS if any(rows[tier] for rows in rows_of_tier.values())}
    came_back = torch.zeros(len(ids), dtype=torch.int64) - 1
    for tier, part in parts.items():
        begin = {name: sum(list(rows.values())[: TIERS.index(tier)]) for name, rows in rows_of_tier.items()}
        assert part.features.keys() == [f for f, name in features if rows_of_tier[name][tier]]
        names = dict(features)
        for feature, of_feature in part.features.to_dict().items():
            rows = of_feature.values().numpy()
            assert ((rows >= 0) & (rows < rows_of_tier[names[feature]][tier])).all()
            remap, first = remaps[names[feature]], begin[names[feature]]
            here = range(first, first + rows_of_tier[names[feature]][tier])
            bags = batch[list(names).index(feature)]
            expected = [[i for i in bag if int(remap.to_row(np.array(i))) in here] for bag in bags]
            assert of_feature.lengths().tolist() == [len(bag) for bag in expected]
            assert remap.to_id(rows + first).tolist() == [i for bag in expected for i in bag]
        came_back[part.order] = ids[part.order]
    assert torch.equal(came_back, ids)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2), max_size=30))
def test_rows_go_back_to_their_places_and_gradients_to_the_rows(tiers: list[int]) -> None:
    tier = torch.tensor(tiers, dtype=torch.int64)
    places = [(tier == k).nonzero().squeeze(1) for k in range(3)]
    rows = [torch.randn(len(place), 4, requires_grad=True) for place in places]
    merged = merge_rows(places, rows)
    assert all(torch.equal(merged[place], part) for place, part in zip(places, rows))
    gradient = torch.randn_like(merged)
    merged.backward(gradient)
    assert all(part.grad is not None and torch.equal(part.grad, gradient[place]) for place, part in zip(places, rows))


TABLES = (
    Table("one", 20, 8, ("f_one",), "none"),
    Table("two", 30, 8, ("f_left", "f_right"), "none"),
    Table("other", 9, 8, ("f_other",), "none"),
)
HOW: How = {"one": (3, 5), "two": (2, 0), "other": "row_wise"}
LIMIT = 10


def look_up_and_count() -> tuple[dict, dict, dict, dict]:
    """Counts of this rank after each of two steps (a reset between them), the ids it kept, and counts after a pass that does not train."""
    batches = samples(TABLES, 2, 16, 3)
    sharded = build(TABLES, placed(TABLES, HOW), "sgd", 3)
    dense = dense_optimizer_of(sharded)
    sharded.watch.keep_ids(LIMIT)
    counts = []
    for batch in batches:
        step(sharded, dense, batch)
        counts.append(sharded.watch.lookups(reset=True))
    with torch.no_grad():
        sharded.module(batches[0].dense[:4], batches[0].part(0, 4).sparse)
    return *counts, sharded.watch.kept_ids(), sharded.watch.lookups()


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (2, 2)])
def test_look_ups_are_counted_by_tier_and_the_last_ids_kept(hosts: int, ranks_per_host: int) -> None:
    world, batches = hosts * ranks_per_host, samples(TABLES, 2, 16, 3)
    for rank, (*figures, last_ids, idle) in enumerate(run_ranks(look_up_and_count, hosts, ranks_per_host)):
        for table in TABLES[:2]:
            a, b = HOW[table.name]
            remap = Remap.of(table.name, hottest(table, a + b), a, b, ranks_per_host, table.rows)
            looked_up = [
                np.array([i for f in table.features for bag in batch.part(rank, world).ids[f] for i in bag], np.int64) for batch in batches
            ]
            for counts, ids in zip(figures, looked_up):
                tier = np.searchsorted([a, a + b], remap.to_row(ids), side="right")
                assert counts[table.name] == dict(zip(TIERS, np.bincount(tier, minlength=3).tolist()))
            assert last_ids[table.name].tolist() == np.concatenate(looked_up)[-LIMIT:].tolist()
            assert not any(idle[table.name].values())
        assert set(last_ids) == {"one", "two"}


def refused(how: How, change: str) -> None:
    plan = placed(TABLES, how)
    hot = hot_rows_of(plan)
    if change == "missing":
        del hot["one"]
    elif change == "too few":
        hot["one"] = hot["one"][:-2]
    elif change == "outside":
        hot["one"][3] = 99
    elif change == "twice":
        hot["one"][1] = hot["one"][0]
    elif change == "other ranks":
        hot["one"] = np.roll(hot["one"], torch.distributed.get_rank())
    shard(Concat(TABLES, 3, torch.device("meta")), plan, CPU, ("sgd", 0.1, 1e-8, 0.0), FP32, SEED, hot_rows=hot)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "table one: a table is sharded by row, and its most frequent rows are not known; given 8 hot rows"),
        ("too few", "rows of table one: the frequencies do not match the plan; given 6 rows; allowed: 8"),
        ("outside", "1 ids outside it, such as 99; allowed: 0 to 19"),
        ("twice", "the frequencies name rows twice; given 1 rows"),
        ("other ranks", "the ranks have different most frequent rows"),
    ],
)
def test_frequencies_that_do_not_match_are_refused_with_figures(change: str, message: str) -> None:
    with pytest.raises(RankFailed, match=message):
        run_ranks(refused, 1, 2, HOW, change)


@pytest.mark.parametrize("scheme", ["table_row_wise", "table_column_wise", "grid_shard"])
def test_schemes_without_a_sequence_exchange_are_refused(scheme: str) -> None:
    allowed = ", ".join(one.name for one in known_schemes().values() if one.sequences)
    with pytest.raises(RankFailed, match=rf"a sequence \(pooling none\) has none; given {scheme}; allowed: {allowed}"):
        run_ranks(refused, 1, 1, {"*": scheme}, "")
