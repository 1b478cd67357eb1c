"""The four contenders of one_machine.py: a DLRM and its data, and how each of them trains it for one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from recsys_lab.data.batch import Batch
from recsys_lab.data.protocol import DataSet
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.planning import Planned, plan_for, this_machine
from recsys_lab.train.objective import click_loss
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer

BATCH, LR = 2048, 0.01
READ_AHEAD = 2
Step = Callable[[Batch], None]


@dataclass(frozen=True)
class Problem:
    """A model and its data. `overrides` are the framework's."""

    overrides: tuple[str, ...]
    data: DataSet
    dim: int
    bottom_layers: list[int]
    over_layers: list[int]


def problem(*overrides: str) -> Problem:
    experiment = experiment_of(overrides, "fp32")
    keys = experiment.config["model"]
    return Problem(overrides, experiment.open_data(), keys["embedding_dim"], keys["bottom_layers"], keys["over_layers"])


def experiment_of(overrides: tuple[str, ...], precision: str) -> Experiment:
    fixed = ("mode=train", "data=random", f"data.batch_size={BATCH}", "data.distinct_rows=16384", f"data.prefetch_batches={READ_AHEAD}")
    rates = [f"optimizer.{part}.{key}" for part in ("dense", "sparse") for key in ("name=sgd", f"lr={LR}")]
    one_rank = ("launcher.hosts=1", "launcher.ranks_per_host=1", "logger=none")
    return of_words([*fixed, *rates, *one_rank, f"precision={precision}", *overrides], where="contenders")


# the contenders -------------------------------------------------------------------------------------------------------


class PlainDLRM(nn.Module):
    """DLRM as one writes it with nothing but torch."""

    def __init__(self, given: Problem):
        super().__init__()
        features = given.data.features
        self.bags = nn.ModuleList(nn.EmbeddingBag(f.rows, given.dim, mode="sum", sparse=True) for f in features)
        vectors = len(features) + 1
        self.bottom = _layers(given.data.dense_features, given.bottom_layers, relu_at_end=True)
        self.over = _layers(vectors * (vectors - 1) // 2 + given.dim, given.over_layers, relu_at_end=False)
        row, col = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + col)

    def forward(self, dense: Tensor, ids: list[Tensor], starts: list[Tensor]) -> Tensor:
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom, *(bag(i, s) for bag, i, s in zip(self.bags, ids, starts))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.over(torch.cat([bottom, dots], dim=1)).squeeze(1)


def _layers(width: int, layers: list[int], relu_at_end: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    for wide, out in zip([width, *layers], layers):
        parts += [nn.Linear(wide, out), nn.ReLU()]
    return nn.Sequential(*(parts if relu_at_end else parts[:-1]))


def torch_step(given: Problem) -> Step:
    model = PlainDLRM(given)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        offsets, values = batch.sparse.offsets(), batch.sparse.values()
        edges = offsets[::BATCH].tolist()
        ids = [values[a:b] for a, b in zip(edges, edges[1:])]
        starts = [offsets[f * BATCH : (f + 1) * BATCH] - edge for f, edge in enumerate(edges[:-1])]
        logits = model(batch.dense, ids, starts)
        nn.functional.binary_cross_entropy_with_logits(logits, batch.labels).backward()
        optimizer.step()

    return step


def torchrec_step(given: Problem) -> Step:
    from torch.distributed.optim import _apply_optimizer_in_backward as in_backward
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
    from torchrec.distributed.types import ShardingEnv, ShardingPlan
    from torchrec.models.dlrm import DLRM
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    configs = [
        EmbeddingBagConfig(name=f"t_{f.name}", embedding_dim=given.dim, num_embeddings=f.rows, feature_names=[f.name])
        for f in given.data.features
    ]
    tables = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    model = DLRM(tables, given.data.dense_features, given.bottom_layers, given.over_layers, torch.device("cpu"))
    in_backward(torch.optim.SGD, tables.parameters(), {"lr": LR})
    sharder = EmbeddingBagCollectionSharder()
    group = dist.new_group([0], backend="gloo")
    plan = construct_module_sharding_plan(
        tables, {c.name: table_wise(rank=0, device="cpu", compute_kernel="fused") for c in configs}, sharder, 1, 1, "cpu"
    )
    path = "sparse_arch.embedding_bag_collection"
    sharded = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(group),
        device=torch.device("cpu"),
        plan=ShardingPlan({path: plan}),
        sharders=[sharder],
        init_data_parallel=False,  # one rank: no gradient to average, and faster without
    )
    dense = torch.optim.SGD([p for name, p in sharded.named_parameters() if path not in name], lr=LR)

    def step(batch: Batch) -> None:
        dense.zero_grad()
        logits = sharded(batch.dense, batch.sparse).squeeze(1)
        nn.functional.binary_cross_entropy_with_logits(logits, batch.labels).backward()
        dense.step()

    return step


def planned(given: Problem, precision: str) -> Planned:
    experiment = experiment_of(given.overrides, precision)
    return plan_for(experiment, given.data, this_machine(experiment), BATCH)


def our_step(given: Problem, precision: str) -> Step:
    experiment = experiment_of(given.overrides, precision)
    options, device = experiment.optimizer, torch.device("cpu")
    sharded = experiment.shard(experiment.build_model(given.data, torch.device("meta")), planned(given, precision).plan, device)
    both = DenseAndTables(dense_optimizer(sharded, options.dense), sharded.sparse_optimizer, options.sparse.rate)

    def step(batch: Batch) -> None:
        both.zero_grad()
        click_loss(sharded.module(batch.dense, batch.sparse), batch, 1).backward()
        both.step()

    return step


CONTENDERS: dict[str, Callable[[Problem], Step]] = {
    "torch": torch_step,
    "torchrec": torchrec_step,
    "fp32": lambda given: our_step(given, "fp32"),
    "split_sgd_bf16": lambda given: our_step(given, "split_sgd_bf16"),
}
