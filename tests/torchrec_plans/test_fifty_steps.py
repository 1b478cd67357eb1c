"""TorchRec's own DLRM on two hosts of two ranks: after fifty steps the weights of an unsharded Trainer, resumed or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchrec.models.dlrm import DLRM
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.lightning import ShardedStrategy, whole_weights
from tests.ranks import run_ranks
from tests.torchrec_plans.test_lightning import OPTIMIZERS, held, trainer
from tests.torchrec_plans.test_lightning_features import plan_for

DIM, DENSE, IDS, BATCH, STEPS = 8, 3, 2, 16, 50
EPOCHS = 2
ROWS = {"user": 40, "item": 30, "country": 5, "shop": 24, "tag": 9}
SCHEMES = {"user": "row_wise", "item": "column_wise", "country": "data_parallel", "shop": "table_row_wise", "tag": "table_wise"}
#: Row-wise Adagrad keeps a number a row and shard, so that a table in columns trains otherwise.
SCHEMES_OF = {"row_wise_adagrad": SCHEMES | {"item": "table_wise"}}
#: Of any weight after all steps. 3e-7 was the most, with row-wise Adagrad.
BOUND = 2e-6


def has_rows(parameter: torch.Tensor) -> bool:
    """TorchRec's row-wise Adagrad takes no biases."""
    return parameter.ndim == 2


class Ranker(pl.LightningModule):
    """Of TorchRec's public classes alone."""

    def __init__(self, optimizer: str):
        super().__init__()
        self.save_hyperparameters()
        pooling = PoolingType.SUM
        tables = [
            EmbeddingBagConfig(name=n, num_embeddings=r, embedding_dim=DIM, feature_names=[n], pooling=pooling) for n, r in ROWS.items()
        ]
        self.model = DLRM(EmbeddingBagCollection(tables, device=torch.device("cpu")), DENSE, [16, DIM], [16, 1])
        drawn = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=drawn))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        dense, ids, labels = batch
        lengths = torch.full((len(ROWS) * len(ids),), IDS, dtype=torch.int32)
        sparse = KeyedJaggedTensor(keys=list(ROWS), values=ids.transpose(0, 1).reshape(-1), lengths=lengths)
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(dense, sparse).squeeze(1), labels)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        name = self.hparams["optimizer"]
        return OPTIMIZERS[name]([one for one in self.parameters() if name != "row_wise_adagrad" or has_rows(one)])


class Samples(Dataset):
    def __len__(self) -> int:
        return BATCH * STEPS // EPOCHS

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        drawn = torch.Generator().manual_seed(number)
        ids = torch.stack([torch.randint(0, rows, (IDS,), generator=drawn) for rows in ROWS.values()])
        return torch.randn(DENSE, generator=drawn), ids, torch.randint(0, 2, (), generator=drawn).float()


class Data(pl.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        many = dist.get_world_size() if dist.is_initialized() else 1
        sampler = DistributedSampler(Samples(), shuffle=False) if many > 1 else None
        return DataLoader(Samples(), batch_size=BATCH // many, sampler=sampler)


def fit(module: Ranker, root: Path, epochs: int, resume: Path | None = None, **more: Any) -> pl.Trainer:
    keeps = ModelCheckpoint(dirpath=root / "checkpoints", save_top_k=-1)
    fitted = trainer(root, epochs, callbacks=[keeps], **more)
    fitted.fit(module, Data(), ckpt_path=resume)
    return fitted


def train(root: Path) -> dict[str, tuple[Any, Any, int]]:
    """By optimizer: what this rank holds after all steps, the same where the training stopped midway and resumed, and the steps."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": "False"}
    actual = {}
    for name in OPTIMIZERS:

        def sharded(folder: str, epochs: int, resume: Path | None = None, name: str = name) -> tuple[Any, int]:
            module = Ranker(name)
            strategy = ShardedStrategy(plan_for(module, 2, 2, SCHEMES_OF.get(name, SCHEMES)))
            fitted = fit(module, root / name / folder, epochs, resume, strategy=strategy, devices=2, num_nodes=2)
            return held(module), fitted.global_step

        straight, steps = sharded("straight", EPOCHS)
        sharded("resumed", 1)
        midway = root / name / "resumed" / "checkpoints" / f"epoch=0-step={STEPS // EPOCHS}.ckpt"
        actual[name] = straight, sharded("resumed", EPOCHS, midway)[0], steps
    return actual


@pytest.mark.long
def test_torchrecs_dlrm_has_the_weights_of_an_unsharded_trainer_after_fifty_steps(tmp_path: Path) -> None:
    ranks = run_ranks(train, 2, 2, tmp_path, timeout_s=280)
    for name in OPTIMIZERS:
        module = Ranker(name)
        begun = {key: value.clone() for key, value in module.state_dict().items()}
        assert fit(module, tmp_path / "plain" / name, EPOCHS).global_step == STEPS
        whole = whole_weights(tmp_path / name / "resumed" / "checkpoints" / f"epoch=1-step={STEPS}.ckpt")
        worst = 0.0
        for key, expected in module.state_dict().items():
            if name != "row_wise_adagrad" or has_rows(expected):
                assert (expected - begun[key]).abs().max() > 1e-3, key  # it learnt something
            seen = torch.zeros_like(expected)
            for straight, resumed, steps in (rank[name] for rank in ranks):
                assert steps == STEPS
                for (row, col, own), (*_, again) in zip(straight[key], resumed[key], strict=True):
                    where = (slice(row, row + own.shape[0]), slice(col, col + own.shape[1])) if own.ndim == 2 else slice(None)
                    worst = max(worst, float((own - expected[where]).abs().max()) if own.numel() else 0.0)
                    assert torch.equal(own, again) and torch.equal(own, whole[key][where]), key
                    seen[where] += 1
            assert seen.min() >= 1, key
        assert worst < BOUND, (name, worst)
