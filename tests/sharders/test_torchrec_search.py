"""What TorchRec's search is asked and what is made of its answer, by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.modules.embedding_configs import DataType, PoolingType
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec, planner, search
from recsys_lab.sharders.torchrec.columns import exchangeable
from recsys_lab.sharders.torchrec.planner import Search, _check_possible, _does_not_fit, _search_of
from recsys_lab.tables import Table
from tests.plan.plans import FP32, workload
from tests.sharders.test_torchrec_parts import counted, table
from tests.simulate.clusters import cluster

TWO = (table("a"), Table("b", 20, 8, ("left", "right"), "mean", "bf16"))


def test_what_the_search_is_asked() -> None:
    """Look-ups of each feature; gigabytes a second as bytes a millisecond; room beside the dense arch."""
    work = workload(7, 1000, dense_optimizer="sgd")
    inputs = PlanInputs(TWO, counted(b=3.0, a=5.0), cluster(2, 3, kind="cuda"), FP32, work)
    assert _search_of(inputs, {"b": ["row_wise"], "a": None}, {"b": 8, "a": 48}) == Search(
        tables=TWO,
        lengths=(5.0, 1.5),
        types=(None, ("row_wise",)),
        widths=(48, 8),
        ranks=6,
        ranks_per_host=3,
        kind="cuda",
        room_bytes=68_000_000_000 - 8000,
        bandwidths=(1e9, 1e8, 1e7),
        batch_size=7,
        sparse_optimizer="adagrad",
    )


def test_the_answer_is_the_plan_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through plain lists and back, as the cache has them."""
    asked = _search_of(
        PlanInputs(TWO, counted(a=1.0, b=2.0), cluster(1, 2), FP32, workload()), {"a": None, "b": ["row_wise"]}, {"a": 4, "b": 8}
    )
    plain = asdict(asked) | {"types": [None, ["row_wise"]], "widths": [4, 8], "lengths": [1.0, 1.0]}
    plain["tables"] = [one | {"features": list(one["features"])} for one in plain["tables"]]
    seen: list[Search] = []
    found = (Placement("a", "table_wise", (Shard((1,), 0, 10, 0, 48),)), Placement("b", "row_wise", (Shard((0, 1), 2, 3, 4, 5),)))
    monkeypatch.setattr(search, "_placements", lambda one: seen.append(one) or found)
    assert search.answered(plain) == [["a", "table_wise", [[(1,), 0, 10, 0, 48]]], ["b", "row_wise", [[(0, 1), 2, 3, 4, 5]]]]
    assert seen == [asked]
    monkeypatch.setattr(search, "_placements", lambda _: None)
    assert search.answered(plain) is None
    planner._placements.cache_clear()
    monkeypatch.setattr(
        planner, "answer", lambda *_: [["a", "table_wise", [[[1], 0, 10, 0, 48]]], ["b", "row_wise", [[[0, 1], 2, 3, 4, 5]]]]
    )
    assert planner._placements(asked) == found
    planner._placements.cache_clear()


def test_what_torchrec_is_told_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    class Planner:
        def __init__(self, **given: Any):
            told.update(given)

        def plan(self, model: Any, sharders: list[Any]) -> Any:
            told.update(model=model, sharders=sharders)
            raise search.PlannerError("no")

    monkeypatch.setattr(search, "EmbeddingShardingPlanner", Planner)
    asked = _search_of(
        PlanInputs(TWO, counted(a=5.0, b=3.0), cluster(1, 2), FP32, workload(7)), {"a": None, "b": ["row_wise"]}, {"a": 4, "b": 8}
    )
    assert search._placements(asked) is None
    of_a, of_b = told["constraints"]["a"], told["constraints"]["b"]
    assert (of_a.sharding_types, of_a.min_partition, of_a.pooling_factors, of_a.compute_kernels) == (None, 4, [5.0], ["fused", "dense"])
    assert (of_b.sharding_types, of_b.min_partition, of_b.pooling_factors) == (["row_wise"], 8, [1.5, 1.5])
    assert told["batch_size"] == 7 and told["stats"] == [] and told["storage_reservation"]._percentage == 0.0
    kinds = [(type(one), getattr(one, "_use_depth", None), getattr(one, "_threshold", None)) for one in told["proposer"]]
    greedy, without = (GreedyProposer, True, search.PATIENCE), (search._WithoutReplicas, True, search.PATIENCE)
    assert kinds[:2] == [greedy, (GreedyProposer, False, search.PATIENCE)]
    assert kinds[3:] == [without, (search._WithoutReplicas, False, search.PATIENCE)]
    configs = told["model"].tables.embedding_bag_configs()
    assert [(c.name, c.num_embeddings, c.embedding_dim, c.feature_names) for c in configs] == [
        ("a", 10, 48, ["f_a"]),
        ("b", 20, 8, ["left", "right"]),
    ]
    assert [(c.pooling, c.data_type) for c in configs] == [(PoolingType.SUM, DataType.FP32), (PoolingType.MEAN, DataType.BF16)]
    (sharder,) = told["sharders"]
    assert sharder.sharding_types("cpu") == list(search.SCHEMES)
    assert sharder.compute_kernels("data_parallel", "cpu") == ["dense"] and sharder.compute_kernels("row_wise", "cpu") == ["fused"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("adagrad", torch.optim.Adagrad),
        ("adam", torch.optim.Adam),
        ("lamb", torch.optim.Adam),
        ("row_wise_adagrad", RowWiseAdagrad),
    ],
)
def test_torchrec_counts_the_state_of_the_optimizer(name: str, kind: type) -> None:
    model = search._Model(TWO, name)
    parameters = list(model.tables.parameters())
    assert len(parameters) == 2 and all(p.device.type == "meta" and p._optimizer_classes == [kind] for p in parameters)


def test_replicas_are_left_out_where_a_table_has_another_option(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(GreedyProposer, "load", lambda self, options, enumerator: loaded.append((options, enumerator)))
    options: list[Any] = [
        SimpleNamespace(name=name, sharding_type=kind)
        for name, kind in [("a", "data_parallel"), ("a", "row_wise"), ("b", "data_parallel"), ("c", "table_wise"), ("a", "table_wise")]
    ]
    enumerator: Any = object()
    search._WithoutReplicas().load(options, enumerator)
    assert loaded == [([options[1], options[2], options[3], options[4]], enumerator)]


def test_torchrecs_shards_are_ours() -> None:
    """Offsets and sizes of each rank's, or a copy on all."""
    spec = SimpleNamespace(
        shards=[SimpleNamespace(shard_offsets=[0, 0], shard_sizes=[10, 16]), SimpleNamespace(shard_offsets=[2, 16], shard_sizes=[5, 32])]
    )
    cut: Any = SimpleNamespace(ranks=[3, 1], sharding_spec=spec, sharding_type="column_wise")
    copies: Any = SimpleNamespace(ranks=[0, 1], sharding_spec=None, sharding_type="data_parallel")
    assert search.from_torchrec(TWO, {"b": copies, "a": cut}) == (
        Placement("a", "column_wise", (Shard((3,), 0, 10, 0, 16), Shard((1,), 2, 7, 16, 48))),
        Placement("b", "data_parallel", (Shard((0, 1), 0, 20, 0, 8),)),
    )


#: On three ranks of 8,500 bytes: 6,000, 1,200 and 2,400 bytes.
SIZES = (table("a", 15, 100), table("b", 15, 20), table("c", 15, 40))


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ((["data_parallel"], ["data_parallel"], ["table_wise"]), "a rank lacks 1.1 kB"),  # 7,200 copied and 2,400 whole
        ((["data_parallel"], ["data_parallel"], None), "pieces are too large"),  # 800 of it are 8,000
        ((["data_parallel"], ["data_parallel"], ["data_parallel"]), "a rank lacks 1.1 kB"),
        ((["data_parallel"], ["table_wise"], ["data_parallel"]), "a rank lacks 1.1 kB"),
        ((["data_parallel"], ["table_wise"], ["table_wise"]), "pieces are too large"),  # 6,000 and the larger of the others
        ((["table_wise"], ["data_parallel"], ["table_wise"]), "pieces are too large"),
        ((["data_parallel"], None, ["row_wise"]), "pieces are too large"),
    ],
)
def test_what_a_rank_lacks_by_hand(types: tuple[list[str] | None, ...], says: str) -> None:
    on = cluster(1, 3)
    on = replace(on, device=replace(on.device, memory_gb=1e-5))
    work = workload(1, 0, sparse_optimizer="sgd", activation_bytes_per_sample=0.0)
    error = _does_not_fit(PlanInputs(SIZES, counted(a=1.0, b=1.0, c=1.0), on, FP32, work), dict(zip("abc", types)))
    assert says in str(error), error


def test_room_and_state_count_in_what_is_lacking() -> None:
    """A table of 6,000 bytes with 400 of state, and 3,200 bytes of dense arch beside it in 8,500."""
    on = cluster(1, 2)
    on = replace(on, device=replace(on.device, memory_gb=1e-5))
    work = workload(1, 200, sparse_optimizer="row_wise_adagrad", activation_bytes_per_sample=0.0)
    error = _does_not_fit(PlanInputs(SIZES[:1], counted(a=1.0), on, FP32, work), {"a": ["table_wise"]})
    assert "a rank lacks 1.1 kB" in str(error) and "allowed: 5.3 kB of tables a rank" in str(error)


def test_idle_ranks_are_filled_in_a_few_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchRec leaves the shards on one rank here, so it is asked as often as it may be. The plan with the fewest idle ranks stays."""
    asked: list[tuple[Any, Any]] = []
    places = [(0, 0), (0, 1), (0, 0), (0, 0), (0, 0)]

    def found(inputs: PlanInputs, types: Any, widths: Any) -> ShardingPlan:
        ranks, one = places[len(asked)], inputs.tables[0]
        asked.append((dict(types), dict(widths)))
        shards = tuple(Shard((rank,), 0, 10, 24 * i, 24 * i + 24) for i, rank in enumerate(ranks))
        return ShardingPlan("torchrec", 1, 4, (one,), (Placement("a", "column_wise", shards),))

    monkeypatch.setattr(planner, "_search", found)
    inputs = PlanInputs(TWO[:1], counted(a=1.0), cluster(1, 4), FP32, workload())
    plan = TorchRec(column_shards="auto").plan(inputs)
    assert plan.placements[0].ranks == (0, 1)
    assert asked[0] == ({"a": None}, {"a": 48})
    assert asked[1:] == [({"a": ["column_wise"]}, {"a": width}) for width in (4, 12, 12)]  # three idle ranks, then two
    asked.clear()
    assert TorchRec(sharding_types=["table_wise"]).plan(inputs).placements[0].ranks == (0,)
    assert asked == [({"a": ["table_wise"]}, {"a": 48})]


@pytest.mark.parametrize(
    ("pooling", "types"), [("mean", ["row_wise"]), ("mean", None), ("mean", ["grid_shard", "row_wise"]), ("sum", ["grid_shard"])]
)
def test_types_that_a_pooling_may_have(pooling: str, types: list[str] | None) -> None:
    _check_possible(replace(table(), pooling=pooling), types)
    with pytest.raises(UserError, match="table t: TorchRec computes mean pooling wrongly under grid_shard"):
        _check_possible(replace(table(), pooling="mean"), ["grid_shard"])


def test_tables_of_sequences_are_an_embedding_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(search.EmbeddingShardingPlanner, "plan", lambda _, model, sharders: told.extend([model, *sharders]) or _no_plan())
    histories = (replace(table(), pooling="none"),)
    inputs = PlanInputs(histories, counted(t=5.0), cluster(1, 2), FP32, workload())
    assert search._placements(_search_of(inputs, {"t": None}, {"t": 4})) is None
    model, sharder = told
    assert isinstance(model.tables, EmbeddingCollection) and sharder.module_type is EmbeddingCollection
    assert sharder.sharding_types("cuda") == ["data_parallel", "table_wise", "column_wise", "row_wise"]
    assert [sharder.compute_kernels(kind, "cuda") for kind in ("data_parallel", "row_wise")] == [["dense"], ["fused"]]


def _no_plan() -> Any:
    raise search.PlannerError("no")


def test_column_shards_of_sequences_have_the_narrowest_width_of_any() -> None:
    histories = tuple(replace(table(), name=name, pooling="none") for name in "abc")
    assert exchangeable(histories, {"a": 16, "b": 4, "c": 8}) == {"a": 4, "b": 4, "c": 4}
    assert exchangeable(TWO, {"a": 16, "b": 4}) == {"a": 16, "b": 4}


@pytest.mark.parametrize("types", [None, ["column_wise"], ["grid_shard", "row_wise"]])
def test_types_that_sequences_may_have(types: list[str] | None) -> None:
    sequence = replace(table(), pooling="none")
    _check_possible(sequence, types)
    with pytest.raises(UserError, match="grid_shard; allowed: data_parallel, table_wise, column_wise, row_wise"):
        _check_possible(sequence, ["table_row_wise", "grid_shard"])
