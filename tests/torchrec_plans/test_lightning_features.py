"""What of Lightning works with shards has the weights of an unsharded Trainer; what would hang or train wrongly is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from lightning.pytorch.plugins.precision import Precision
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchrec.distributed import types as trt
from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, data_parallel, row_wise, table_wise
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.interop import torchrec_plans
from recsys_lab.lightning import ShardedStrategy, whole_weights
from recsys_lab.lightning.refusals import check_module, check_options
from recsys_lab.lightning.torchrec_executor import BagSharder, SequenceSharder
from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from tests.executor.sharded import FP32, small_cluster, statistics, workload
from tests.ranks import run_ranks
from tests.torchrec_plans.test_lightning import BATCH, DIM, EPOCHS, OPTIMIZERS, Clicks, Data, Samples, held, made_plan, trainer

Shards = dict[str, list[tuple[int, int, torch.Tensor]]]


class ByHand(Clicks):
    """Two optimizers, which Lightning has in manual optimization alone."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, _: int) -> None:
        sparse, dense = self.optimizers()
        sparse.zero_grad()
        dense.zero_grad()
        self.manual_backward(nn.functional.binary_cross_entropy_with_logits(self(batch[0]), batch[1]))
        sparse.step()
        dense.step()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.inner.parameters(), lr=0.1), torch.optim.Adam(self.over.parameters(), lr=0.01)


ROWS_OF_SEQUENCES = {"seen": 20, "liked": 9, "where": 6, "when": 7}


class Many(Clicks):
    """Sequences under each scheme, two features of one table, weighted bags, and one collection under two names."""

    def __init__(self) -> None:
        super().__init__()
        weighted = [EmbeddingBagConfig(12, DIM, name="shop", feature_names=["shop"], pooling=PoolingType.SUM)]
        self.weighted = EmbeddingBagCollection(weighted, is_weighted=True, device=torch.device("cpu"))
        names = {"seen": ["seen", "seen_before"], "liked": ["liked"], "where": ["where"], "when": ["when"]}
        rows = ROWS_OF_SEQUENCES
        configs = [EmbeddingConfig(rows[name], DIM, name=name, feature_names=features) for name, features in names.items()]
        self.history = EmbeddingCollection(configs, device=torch.device("cpu"))
        self.again = self.history
        with torch.no_grad():
            drawn = torch.Generator().manual_seed(6)
            for parameter in (*self.weighted.parameters(), *self.history.parameters()):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=drawn))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        lengths, few = torch.full((len(ids),), 2, dtype=torch.int32), ids[:, 0].reshape(-1)
        shops = KeyedJaggedTensor(keys=["shop"], values=few % 12, lengths=lengths, weights=0.1 * (few % 5).float())
        pooled = super().forward(ids) + self.weighted(shops)["shop"].sum(1)
        keys = ["seen", "seen_before", "liked", "where", "when"]
        each = {key: few + number for number, key in enumerate(keys)}
        values = torch.cat([each[key] % ROWS_OF_SEQUENCES[key.partition("_")[0]] for key in keys])
        read = KeyedJaggedTensor(keys=keys, values=values, lengths=lengths.repeat(len(keys)))
        for part in (self.history, self.again):
            actual = part(read)
            pooled = pooled + sum(actual[key].values().view(len(ids), -1).tanh().sum(1) for key in keys)
        return pooled


CASES: dict[str, tuple[Callable[[], Clicks], dict[str, Any]]] = {
    "accumulation": (lambda: Clicks("adam"), {"accumulate_grad_batches": 2}),
    "clipping": (Clicks, {"gradient_clip_val": 0.05}),
    "by_hand": (ByHand, {}),
    "many_collections": (Many, {}),
}


def plan_for(module: nn.Module, hosts: int, ranks_per_host: int, force: dict[str, str]) -> ShardingPlan:
    tables = torchrec_plans.tables_of(module)
    inputs = PlanInputs(tables, statistics(tables), small_cluster(hosts, ranks_per_host), FP32, workload(batch_size=BATCH))
    return TorchRec(force=force, column_shard_width=4).plan(inputs)


def of_module(module: nn.Module) -> ShardingPlan:
    """On two ranks. Our planners place pooled tables alone, so that sequences take the way of TorchRec's plans."""
    if not isinstance(module, Many):
        return made_plan(1, 2)
    bags, sequences = BagSharder(), SequenceSharder()
    kinds: dict[str, Any] = {"sparse": (bags, {"user": row_wise(), "item": column_wise(ranks=[0, 1]), "country": data_parallel()})}
    kinds |= {"weighted": (bags, {"shop": row_wise()})}
    of_sequences = {"seen": table_wise(rank=1), "liked": row_wise(), "where": column_wise(ranks=[0, 1]), "when": data_parallel()}
    kinds |= {"history": (sequences, of_sequences)}
    actual = {}
    for path, collection in torchrec_plans.collections_of(module):
        sharder, how = kinds[path.rpartition(".")[2]]
        actual[path] = construct_module_sharding_plan(collection, how, sharder, local_size=2, world_size=2, device_type="cpu")
    return torchrec_plans.from_torchrec(trt.ShardingPlan(actual), module, 1, 2)


def as_rank() -> None:
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": "False"}


def under(plan: ShardingPlan, root: Path, epochs: int = EPOCHS, **more: Any) -> pl.Trainer:
    as_rank()
    return trainer(root, epochs, strategy=ShardedStrategy(plan), devices=plan.ranks_per_host, num_nodes=plan.hosts, **more)


def train_cases(root: Path) -> list[Shards]:
    actual = []
    for name, (make, more) in CASES.items():
        module = make()
        under(of_module(module), root / name, **more).fit(module, Data(BATCH // dist.get_world_size()))
        actual.append(held(module))
    return actual


def test_each_feature_has_the_weights_of_an_unsharded_trainer(tmp_path: Path) -> None:
    ranks = run_ranks(train_cases, 1, 2, tmp_path, timeout_s=200)
    for number, (name, (make, more)) in enumerate(CASES.items()):
        plain, unclipped = make(), make()
        trainer(tmp_path / "plain" / name, **more).fit(plain, Data(BATCH))
        if name == "clipping":
            trainer(tmp_path / "unclipped").fit(unclipped, Data(BATCH))
            assert any((a - b).abs().max() > 1e-3 for a, b in zip(plain.parameters(), unclipped.parameters()))  # it clips
        for key, expected in plain.state_dict().items():
            check_same([rank[number][key] for rank in ranks], expected, f"{name} {key}")


def check_same(ranks: list[list[tuple[int, int, torch.Tensor]]], expected: torch.Tensor, where: str) -> None:
    seen = torch.zeros_like(expected)
    for row, col, own in (piece for rank in ranks for piece in rank):
        part = (slice(row, row + own.shape[0]), slice(col, col + own.shape[1])) if own.ndim == 2 else slice(None)
        assert torch.allclose(own, expected[part], atol=2e-6, rtol=1e-5), f"{where}: {own - expected[part]}"
        seen[part] += 1
    assert seen.min() >= 1


ELSEWHERE = {"user": "column_wise", "item": "table_wise", "country": "row_wise"}


def one_epoch(root: Path) -> None:
    for name in OPTIMIZERS:
        plan = made_plan(1, 2, item="table_wise") if name == "row_wise_adagrad" else made_plan(1, 2)
        under(plan, root / name, epochs=1).fit(Clicks(name), Data(BATCH // 2))


def second_epoch(root: Path) -> list[Shards]:
    """On four ranks, by another plan where the optimizer's state allows it."""
    actual = []
    for name in OPTIMIZERS:
        module = Clicks(name)
        schemes = {"user": "row_wise", "item": "row_wise", "country": "table_wise"} if name == "row_wise_adagrad" else ELSEWHERE
        path = root / name / "checkpoints" / "epoch=0-step=6.ckpt"
        under(plan_for(module, 2, 2, schemes), root / name).fit(module, Data(BATCH // 4), ckpt_path=path)
        actual.append(held(module))
    return actual


def test_a_checkpoint_resumes_on_other_ranks_under_another_plan(tmp_path: Path) -> None:
    run_ranks(one_epoch, 1, 2, tmp_path, timeout_s=200)
    ranks = run_ranks(second_epoch, 2, 2, tmp_path, timeout_s=200)
    for number, name in enumerate(OPTIMIZERS):
        plain = Clicks(name)
        trainer(tmp_path / "plain" / name).fit(plain, Data(BATCH))
        whole = whole_weights(tmp_path / name / "checkpoints" / "epoch=1-step=12.ckpt")
        for key, expected in plain.state_dict().items():
            check_same([rank[number][key] for rank in ranks], expected, f"{name} {key}")
            torch.testing.assert_close(whole[key], expected, atol=2e-6, rtol=1e-5)
        Clicks(name).load_state_dict(whole)


class Uneven(Data):
    """Of 33 samples one rank has a batch more than the other: Lightning repeats none to predict."""

    def predict_dataloader(self) -> DataLoader:
        return DataLoader(Subset(Samples(), range(33)), batch_size=self.batch)


class Predicts(Clicks):
    def predict_step(self, batch: Any, _: int) -> torch.Tensor:
        return self(batch[0])


class OwnPrecision(Precision):
    """Would clip by the norm of one rank."""


class Apart(Clicks):
    """Figures that differ between ranks, and stand in the name of a checkpoint."""

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("apart", float(dist.get_rank()))


def together(root: Path) -> tuple[list[str], list[str], int]:
    """What is refused where ranks meet, and how the rest ends."""
    plan, data = made_plan(1, 2), Data(BATCH // 2)
    fitted = Clicks()
    under(plan, root / "fitted").validate(fitted, data, verbose=False)
    attempts: list[Callable[[], object]] = [
        lambda: under(plan, root).predict(Predicts(), Uneven(8)),
        lambda: under(made_plan(1, 2, user="table_wise"), root).validate(fitted, data, verbose=False),
        lambda: under(plan, root, callbacks=[EMAWeightAveraging()]).fit(Clicks(), data),
        lambda: under(plan, root, plugins=[AsyncCheckpointIO()]).fit(Clicks(), data),
        lambda: under(plan, root, plugins=[OwnPrecision()]).fit(Clicks(), data),
    ]
    messages = [_refusal(attempt) for attempt in attempts]
    keeps = ModelCheckpoint(dirpath=root / "apart", filename="{apart:.0f}", monitor="apart", save_last="link", every_n_train_steps=2)
    short = under(plan, root, epochs=3, callbacks=[keeps, EarlyStopping("loss", patience=0, min_delta=9.0)], val_check_interval=2)
    short.fit(Apart(), data)
    short.fit(Apart(), data, ckpt_path="last")
    return messages, sorted(os.listdir(root / "apart")), short.global_step


def _refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except UserError as error:
        return str(error)
    return "accepted"


def test_what_would_hang_is_refused_and_names_of_checkpoints_are_rank_0s(tmp_path: Path) -> None:
    for messages, kept, steps in run_ranks(together, 1, 2, tmp_path, timeout_s=200):
        assert messages[0].startswith("predict: ranks have different numbers of batches") and "given 2 to 3" in messages[0], messages[0]
        assert "limit_predict_batches=2" in messages[0]
        assert "sharded by another plan" in messages[1], messages[1]
        assert messages[2].startswith("Trainer(callbacks): not with sharded tables"), messages
        assert all(message.startswith("Trainer(plugins): not with") for message in messages[3:]), messages
        assert (
            "apart=0.ckpt" in kept and "last.ckpt" in kept and "apart=1.ckpt" not in kept and 4 <= steps < 18
        )  # it stopped early, before and after


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: check_options({"start_method": "fork"}), "ShardedStrategy(start_method): not with sharded tables: a forked process"),
        (lambda: ShardedStrategy(made_plan(1, 2), model_averaging_period=4), "ShardedStrategy(model_averaging_period)"),
        (lambda: check_module(nn.ModuleDict({"bags": fused()})), "bags: its optimizer runs in the backward pass"),
        (lambda: check_module(in_backward()), "inner.sparse.embedding_bags.user.weight: an optimizer runs in the backward pass"),
        (lambda: whole_weights("nowhere.ckpt"), "nowhere.ckpt: no checkpoint of a ShardedStrategy; given nothing"),
    ],
)
def test_a_mistake_is_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value).startswith(says) and "\n" not in str(error.value)


def fused() -> FusedEmbeddingBagCollection:
    config = EmbeddingBagConfig(4, DIM, name="t", feature_names=["f"])
    return FusedEmbeddingBagCollection([config], torch.optim.SGD, {"lr": 0.1}, device=torch.device("cpu"))


def in_backward() -> Clicks:
    module = Clicks()
    apply_optimizer_in_backward(torch.optim.SGD, module.inner.parameters(), {"lr": 0.1})
    return module
