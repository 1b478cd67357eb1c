"""A LightningModule of the user's own under our strategy: the weights of an unsharded Trainer, checkpoints, and what cannot work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.interop import torchrec_plans
from recsys_lab.lightning import ShardedStrategy
from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from tests.executor.sharded import FP32, small_cluster, statistics, workload
from tests.ranks import run_ranks

TABLES = {"user": (40, ["user"]), "item": (30, ["clicked", "bought"]), "country": (5, ["country"])}
KEYS = [name for _, names in TABLES.values() for name in names]
ROWS_OF = {name: rows for rows, names in TABLES.values() for name in names}
DIM, SAMPLES, BATCH, EPOCHS = 8, 96, 16, 2
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "row_wise_adagrad": lambda parameters: RowWiseAdagrad(parameters, lr=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


class Clicks(pl.LightningModule):
    """As a user would write it: nothing of ours."""

    def __init__(self, optimizer: str = "sgd"):
        super().__init__()
        self.save_hyperparameters()
        configs = [
            EmbeddingBagConfig(rows, DIM, name=n, feature_names=names, pooling=PoolingType.SUM) for n, (rows, names) in TABLES.items()
        ]
        self.inner = nn.ModuleDict({"sparse": EmbeddingBagCollection(configs, device=torch.device("cpu"))})
        self.over = nn.Sequential(nn.Linear(DIM * len(KEYS), 4, bias=False), nn.Tanh(), nn.Linear(4, 1, bias=False))
        with torch.no_grad():
            drawn = torch.Generator().manual_seed(5)
            for parameter in self.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=drawn))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((len(KEYS) * len(ids),), 2, dtype=torch.int32)
        actual = self.inner["sparse"](KeyedJaggedTensor(keys=KEYS, values=ids.transpose(0, 1).reshape(-1), lengths=lengths))
        return self.over(torch.cat([actual[key] for key in KEYS], dim=1)).squeeze(1)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = nn.functional.binary_cross_entropy_with_logits(self(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("validation_loss", nn.functional.binary_cross_entropy_with_logits(self(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = OPTIMIZERS[self.hparams["optimizer"]](self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


class Samples(Dataset):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.Generator().manual_seed(number)
        ids = torch.stack([torch.randint(0, ROWS_OF[key], (2,), generator=drawn) for key in KEYS])
        return ids, torch.randint(0, 2, (), generator=drawn).float()


class Data(pl.LightningDataModule):
    """Batches of `batch` samples of each rank, in order: those of all ranks together are the unsharded Trainer's."""

    def __init__(self, batch: int):
        super().__init__()
        self.batch = batch

    def train_dataloader(self) -> DataLoader:
        sampler = DistributedSampler(Samples(), shuffle=False) if dist.is_initialized() else None
        return DataLoader(Samples(), batch_size=self.batch, sampler=sampler)

    val_dataloader = train_dataloader


def made_plan(hosts: int, ranks_per_host: int, **schemes: str) -> ShardingPlan:
    tables = torchrec_plans.tables_of(Clicks())
    inputs = PlanInputs(tables, statistics(tables), small_cluster(hosts, ranks_per_host), FP32, workload(batch_size=BATCH))
    force = {"user": "row_wise", "item": "column_wise", "country": "data_parallel"} | schemes
    return TorchRec(force=force, column_shard_width=4).plan(inputs)


def trainer(root: Path, epochs: int = EPOCHS, **more: Any) -> pl.Trainer:
    callbacks = [
        ModelCheckpoint(dirpath=root / "checkpoints", monitor="validation_loss", save_top_k=-1, save_last=False),
        LearningRateMonitor(),
    ]
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, "log_every_n_steps": 1}
    return pl.Trainer(
        **(
            {"default_root_dir": root, "accelerator": "cpu", "max_epochs": epochs, "callbacks": callbacks, "logger": CSVLogger(root)}
            | quiet
            | more
        )
    )


def sharded_trainer(root: Path, hosts: int, ranks_per_host: int, schemes: dict[str, str] | None = None, **more: Any) -> pl.Trainer:
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": "False"}
    strategy = ShardedStrategy(made_plan(hosts, ranks_per_host, **(schemes or {})))
    return trainer(root, strategy=strategy, devices=ranks_per_host, num_nodes=hosts, **more)


def held(module: nn.Module) -> dict[str, list[tuple[int, int, torch.Tensor]]]:
    """What this rank has of each weight: first row, first column, values."""
    actual = {}
    for name, value in module.state_dict().items():
        shards = value.local_shards() if isinstance(value, ShardedTensor) else None
        actual[name] = [(0, 0, value.clone())] if shards is None else [(*s.metadata.shard_offsets, s.tensor.clone()) for s in shards]
    return actual


def train_each(root: Path, hosts: int, ranks_per_host: int) -> list[Any]:
    """With each optimizer: the weights here; the same stopped after an epoch and resumed from its checkpoint; the logged losses."""
    actual = []
    for name in OPTIMIZERS:
        schemes = {"item": "table_wise"} if name == "row_wise_adagrad" else {}  # a row's state is of the columns that a rank has
        data, weights = Data(BATCH // dist.get_world_size()), []
        for folder, legs in (("straight", [(EPOCHS, None)]), ("resumed", [(1, None), (EPOCHS, "epoch=0-step=6.ckpt")])):
            for epochs, kept in legs:
                module, own = Clicks(name), root / name / folder
                path = own / "checkpoints" / kept if kept else None
                sharded_trainer(own, hosts, ranks_per_host, schemes, max_epochs=epochs).fit(module, data, ckpt_path=path)
            weights.append(held(module))
        actual.append(
            (
                weights,
                {
                    k: float(v)
                    for k, v in sharded_trainer(root / name / "judged", hosts, ranks_per_host, schemes)
                    .validate(module, data, verbose=False)[0]
                    .items()
                },
            )
        )
    return actual


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 2), (2, 2)])
def test_a_users_module_trains_as_without_shards(hosts: int, ranks_per_host: int, tmp_path: Path) -> None:
    ranks = run_ranks(train_each, hosts, ranks_per_host, tmp_path, hosts, ranks_per_host, timeout_s=250)
    for number, name in enumerate(OPTIMIZERS):
        module, plain = Clicks(name), trainer(tmp_path / "plain" / name)
        begun = {key: value.clone() for key, value in module.state_dict().items()}
        plain.fit(module, Data(BATCH))
        judged = plain.validate(module, Data(BATCH), verbose=False)[0]
        for key, expected in module.state_dict().items():
            assert (expected - begun[key]).abs().max() > 1e-3  # it learnt something
            seen = torch.zeros_like(expected)
            for rank in ranks:
                (straight, resumed), validation = rank[number]
                for (row, col, own), (*_, again) in zip(straight[key], resumed[key], strict=True):
                    where = (slice(row, row + own.shape[0]), slice(col, col + own.shape[1])) if own.ndim == 2 else slice(None)
                    assert torch.allclose(own, expected[where], atol=2e-6, rtol=1e-5), f"{name} {key}: {own - expected[where]}"
                    assert torch.equal(own, again), f"{name} {key}: {own - again}"
                    seen[where] += 1
            assert seen.min() >= 1
        assert [rank[number][1] for rank in ranks] == [pytest.approx(judged, rel=1e-5)] * len(ranks)
        world = hosts * ranks_per_host
        kept = tmp_path / name / "straight" / "checkpoints" / "epoch=1-step=12.ckpt"
        assert sorted(os.listdir(kept)) == [f"rank_{rank}_of_{world}.ckpt" for rank in range(world)]


CANNOT = {
    "precision": {"precision": "16-true"},
    "callbacks": {"callbacks": [StochasticWeightAveraging(0.1)]},
}


def refused(root: Path) -> list[str]:
    messages = []
    for more in CANNOT.values():
        messages.append(_refusal(lambda: sharded_trainer(root, 1, 2, **more).fit(Clicks(), Data(BATCH))))  # noqa: B023
    other = trainer(root, strategy=ShardedStrategy(made_plan(1, 4)), devices=2)
    messages.append(_refusal(lambda: other.fit(Clicks(), Data(BATCH))))
    messages.append(_refusal(lambda: sharded_trainer(root, 1, 2).fit(Clicks(), Data(BATCH), ckpt_path=root)))
    return messages


def _refusal(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except UserError as error:
        return str(error)
    return "accepted"


def test_what_cannot_work_is_refused_with_a_reason(tmp_path: Path) -> None:
    for messages in run_ranks(refused, 1, 2, tmp_path):
        for name, line in zip(CANNOT, messages):
            assert line.startswith(f"Trainer({name}): not with sharded tables: "), line
        assert "the plan is for other ranks" in messages[-2] and "no checkpoint of a ShardedStrategy" in messages[-1], messages


def refused_by_each(root: Path, ranks: int) -> str:
    """What a module says whose countries are numbered from 1."""

    class FromOne(Data):
        def train_dataloader(self) -> DataLoader:
            ids = torch.stack([torch.full((8,), ROWS_OF[key] - (key != "country")) for key in KEYS], dim=1)
            return DataLoader([(pair, torch.tensor(1.0)) for pair in ids.unsqueeze(2).expand(-1, -1, 2)], batch_size=8)

    with pytest.raises(UserError) as caught:
        sharded_trainer(root, 1, ranks, {"item": "table_wise"}, limit_val_batches=0).fit(Clicks(), FromOne(8))
    return str(caught.value)


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_id_outside_a_table_of_the_users_is_refused(ranks: int, tmp_path: Path) -> None:
    for message in run_ranks(refused_by_each, 1, ranks, tmp_path, ranks, timeout_s=100):
        assert "inner.sparse: an id is outside its table; given id 5 of feature country, whose table has 5 rows" in message
        assert "subtract 1" in message
