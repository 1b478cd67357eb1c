"""A user's own TorchRec model: our plans train it under DistributedModelParallel, and theirs are read and priced."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torchrec.distributed import sharding_plan as tr
from torchrec.distributed import types as trt
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab import api
from recsys_lab.errors import UserError
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.interop import torchrec_plans
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.explain import explain
from recsys_lab.plan.lower import lower
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster, statistics, workload
from tests.ranks import run_ranks

#: Two tables look `clicked` up, as wide and deep models do.
FEATURES = {
    "user": (40, 8, ["user"]),
    "item": (30, 8, ["clicked", "bought"]),
    "country": (5, 8, ["country"]),
    "wide": (30, 4, ["clicked"]),
}
KEYS = list(dict.fromkeys(name for _, _, names in FEATURES.values() for name in names))
WIDTH = sum(dim * len(names) for _, dim, names in FEATURES.values())
SCHEMES = {"user": "row_wise", "item": "column_wise", "country": "data_parallel", "wide": "table_wise"}
ROWS, STEPS, LR = 4, 50, 0.1

register()


class Clicks(nn.Module):
    """As a user of TorchRec would write it: nothing of ours."""

    def __init__(self, device: str):
        super().__init__()
        tables = [
            EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=dim, feature_names=names, pooling=PoolingType.SUM)
            for name, (rows, dim, names) in FEATURES.items()
        ]
        self.sparse = EmbeddingBagCollection(tables, device=torch.device(device))
        self.over = nn.Linear(WIDTH, 1, device=device)

    def first_values(self) -> dict[str, torch.Tensor]:
        """The same in every process."""
        drawn = torch.Generator().manual_seed(5)
        return {name: 0.3 * torch.randn(value.shape, generator=drawn) for name, value in self.named_parameters()}

    def forward(self, ids: KeyedJaggedTensor) -> torch.Tensor:
        actual = self.sparse(ids)
        return self.over(torch.cat([actual[key] for key in sorted(actual.keys())], dim=1)).squeeze(1)


def batch(step: int, ranks: range, world: int) -> tuple[KeyedJaggedTensor, torch.Tensor]:
    """The rows of `ranks`: two ids a feature, those of any rank the same whoever asks."""
    rows = {name: FEATURES["item"][0] if name in ("clicked", "bought") else FEATURES[name][0] for name in KEYS}
    drawn = {
        k: torch.randint(0, rows[k], (world, ROWS, 2), generator=torch.Generator().manual_seed(100 * step + i)) for i, k in enumerate(KEYS)
    }
    labels = torch.randint(0, 2, (world, ROWS), generator=torch.Generator().manual_seed(7000 + step)).float()
    own = list(ranks)
    values = torch.cat([drawn[key][own].reshape(-1) for key in KEYS])
    lengths = torch.full((len(KEYS) * len(own) * ROWS,), 2, dtype=torch.int32)
    return KeyedJaggedTensor(keys=KEYS, values=values, lengths=lengths), labels[own].reshape(-1)


def made_plan(hosts: int, ranks_per_host: int) -> ShardingPlan:
    tables = torchrec_plans.tables_of(Clicks("meta"))
    inputs = PlanInputs(tables, statistics(tables), small_cluster(hosts, ranks_per_host), FP32, workload(batch_size=ROWS))
    return TorchRec(force=SCHEMES, column_shard_width=4).plan(inputs)


class Sharder(EmbeddingBagCollectionSharder):
    """TorchRec allows row blocks on GPUs only; on the CPU they work."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in trt.ShardingType]


Piece = tuple[int, int, torch.Tensor]  # first row, first column, weights


def pieces(sharded: nn.Module) -> dict[str, list[Piece]]:
    """What this rank holds of each parameter; changing it changes the model."""
    held: dict[str, list[Piece]] = {}
    for name, value in sharded.state_dict().items():
        if isinstance(value, ShardedTensor):
            held[name] = [(*shard.metadata.shard_offsets, shard.tensor) for shard in value.local_shards()]
        else:
            held[name] = [(0, 0, value)]
    return held


def train() -> tuple[list[torch.Tensor], dict[str, list[Piece]], list]:
    """Fifty steps under our plan: each step's logits, what this rank holds then, and what it sent in the last step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Clicks("meta")
    weights = model.first_values()
    sharded = DistributedModelParallel(
        model,
        device=torch.device("cpu"),
        plan=torchrec_plans.to_torchrec(made_plan(2, 2), model, "cpu"),
        sharders=[Sharder()],
    )
    with torch.no_grad():
        for name, held in pieces(sharded).items():
            for row, col, own in held:
                whole = weights[name]
                own.copy_(whole if whole.ndim == 1 else whole[row : row + own.shape[0], col : col + own.shape[1]])
    own = [parameter for _, parameter in in_backward_optimizer_filter(sharded.named_parameters()) if parameter.numel()]
    dense = torch.optim.SGD(own, lr=LR)
    logits, sent = [], []
    for step in range(STEPS):
        ids, labels = batch(step, range(rank, rank + 1), world)
        if step == STEPS - 1:
            start_recording()
        dense.zero_grad()
        logits.append(sharded(ids))
        nn.functional.binary_cross_entropy_with_logits(logits[-1], labels).backward()
        if step == STEPS - 1:
            sent = [(one.kind, one.group, one.bytes) for one in stop_recording()]
        dense.step()
    held = {name: [(row, col, own.clone()) for row, col, own in held] for name, held in pieces(sharded).items()}
    return [one.detach() for one in logits], held, sent


def test_a_users_model_trains_under_our_plan_as_it_does_unsharded() -> None:
    """Two hosts of two ranks, fifty steps: the weights are those of one process to rounding, and TorchRec sends what our steps say."""
    model = Clicks("cpu")
    weights = model.first_values()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    ranks = run_ranks(train, 2, 2, backend="recorded")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(STEPS):
        ids, labels = batch(step, range(4), 4)
        optimizer.zero_grad()
        logits = model(ids)
        sharded_logits = torch.cat([of_rank[step] for of_rank, _, _ in ranks])
        assert torch.allclose(sharded_logits, logits.detach(), atol=1e-6, rtol=0), f"step {step}: {sharded_logits - logits.detach()}"
        nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        whole, seen = parameter.detach(), torch.zeros_like(parameter)
        assert (whole - weights[name]).abs().max() > 1e-3  # it learnt something
        for _, held, _ in ranks:
            for row, col, own in held[name]:
                where = (slice(row, row + own.shape[0]), slice(col, col + own.shape[1])) if own.ndim == 2 else slice(None)
                torch.testing.assert_close(own, whole[where], atol=1e-6, rtol=0)
                seen[where] += 1
        assert seen.min() >= 1

    plan = made_plan(2, 2)
    access = AccessStatistics({t.name: power_law_access(t.name, t.rows, 2.0 * len(t.features), 1.0) for t in plan.tables})
    steps = lower(plan, access, FP32, replace(workload(batch_size=ROWS), dense_parameters=WIDTH + 1))
    for rank, (_, _, sent) in enumerate(ranks):
        assert sorted(sent) == sorted(steps.collectives_of(rank))


BIG = [
    EmbeddingBagConfig(name=f"t{i}", num_embeddings=2_000_000, embedding_dim=128, feature_names=[f"f{i}"], pooling=PoolingType.SUM)
    for i in range(8)
]


def forced(bags: EmbeddingBagCollection, how: dict[str, object]) -> trt.ShardingPlan:
    torchrec_plan = tr.construct_module_sharding_plan(bags, how, Sharder(), local_size=8, world_size=8, device_type="cuda")
    return trt.ShardingPlan({"": torchrec_plan})


def test_forced_replicas_are_slower_and_the_phases_say_why() -> None:
    """torchrec#3505: tables that were forced to data_parallel halved the throughput. Their gradients are as large as the tables."""
    bags = EmbeddingBagCollection(BIG, device=torch.device("meta"))
    whole = forced(bags, {f"t{i}": tr.table_wise(rank=i) for i in range(8)})
    replicas = forced(bags, {f"t{i}": tr.data_parallel() for i in range(8)})
    table = torchrec_plans.compared(
        bags, {"whole": whole, "replicas": replicas, "ours": "neo_4d"}, "cluster=h100x8", "optimizer.sparse.name=sgd"
    )
    assert table["iteration_ms"]["replicas"] > 2 * table["iteration_ms"]["whole"]
    gradients_mb = 8 * 2e6 * 128 * 4 / 1e6
    assert table["sent_mb"]["replicas"] == pytest.approx(gradients_mb, rel=0.01) and table["sent_mb"]["whole"] < 0.01 * gradients_mb
    # a sum of gradients, an update of every row, and the host
    waits = table["exposed_embedding_comm"] + table["compute"] + table["host_launch"]
    assert waits["replicas"] > 0.9 * table["iteration_ms"]["replicas"]
    assert table["iteration_ms"]["ours"] <= 1.05 * table["iteration_ms"]["whole"]
    assert table["tables_gb"]["replicas"] == pytest.approx(8 * table["tables_gb"]["whole"], rel=0.05)  # and the dense part
    assert "data_parallel: 8 tables" in "\n".join(explain(torchrec_plans.from_torchrec(replicas, bags, 1, 8)))
    priced = torchrec_plans.simulate(bags, replicas, "cluster=h100x8", "optimizer.sparse.name=sgd")
    assert priced.iteration_ms == table["iteration_ms"]["replicas"]


def test_theirs_is_ours_again() -> None:
    model = Clicks("meta")
    plan = made_plan(2, 2)
    back = torchrec_plans.from_torchrec(torchrec_plans.to_torchrec(plan, model, "cuda"), model, 2, 2)
    assert back.placements == plan.placements and back.tables == plan.tables


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: torchrec_plans.tables_of(nn.Linear(1, 1)), "Linear: no EmbeddingBagCollection and no EmbeddingCollection"),
        (lambda: torchrec_plans.tables_of(nn.ModuleList([Clicks("meta"), Clicks("meta")])), "two tables have one name; given user"),
        (
            lambda: torchrec_plans.to_torchrec(of_tables(Table("user", 41, 8, ("user",))), Clicks("meta"), "cpu"),
            "another size; given 40 x 8",
        ),
        (
            lambda: torchrec_plans.to_torchrec(of_tables(Table("users", 40, 8, ("user",))), Clicks("meta"), "cpu"),
            "no such table; given user",
        ),
        (lambda: torchrec_plans.from_torchrec(trt.ShardingPlan({}), Clicks("meta"), 1, 1), "no such module; given sparse"),
        (lambda: torchrec_plans.tables_of(EmbeddingBagCollection([INT8], device=torch.device("meta"))), "no such format.*given INT8"),
        (
            lambda: api.simulate("model=dcn", "cluster=h100x8", given=of_tables(Table("user", 40, 8, ("user",)))),
            "plan: of other tables or ranks",
        ),
    ],
)
def test_a_mistake_is_one_line(call, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_feature_of_two_tables_is_one_of_each() -> None:
    by_name = {table.name: table.features for table in torchrec_plans.tables_of(Clicks("meta"))}
    assert by_name == {"user": ("user",), "item": ("clicked@item", "bought"), "country": ("country",), "wide": ("clicked@wide",)}
    priced = torchrec_plans.compared(
        Clicks("meta"), {"ours": "torchrec_row_wise"}, "cluster=h100x8", "model=tables_concat", mean_ids={"clicked": 3.0}
    )
    assert priced["iteration_ms"]["ours"] > 0


def test_columns_that_the_gpus_kernels_refuse_are_refused() -> None:
    wide = EmbeddingBagCollection([EmbeddingBagConfig(5_000_000, 10, name="item", feature_names=["item"])], device=torch.device("meta"))
    plan = api.plan(torchrec_plans.experiment(wide, "cluster=h100x8", "sharder=neo_4d")).plan
    with pytest.raises(UserError, match="table item: FBGEMM's kernels for CUDA read four columns at a time; given .* columns in a shard"):
        torchrec_plans.to_torchrec(plan, wide, "cuda")
    assert torchrec_plans.to_torchrec(plan, wide, "cpu").plan


INT8 = EmbeddingBagConfig(name="t", num_embeddings=9, embedding_dim=8, feature_names=["f"], data_type=DataType.INT8)


def of_tables(*tables: Table) -> ShardingPlan:
    inputs = PlanInputs(tables, statistics(tables), small_cluster(1, 1), FP32, workload())
    return TorchRec(force={"*": "table_wise"}).plan(inputs)


def test_ids_of_a_feature_that_the_model_has_not_are_refused() -> None:
    with pytest.raises(UserError, match=r"mean_ids: no such feature; given usr; .*did you mean 'user'"):
        torchrec_plans.experiment(Clicks("meta"), "cluster=h100x8", mean_ids={"usr": 42.5})
