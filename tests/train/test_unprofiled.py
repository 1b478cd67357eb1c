"""Ranges that torch and TorchRec name are there for a profiler, and do nothing without one. Callbacks' hooks run as Lightning runs them."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.trainer import call
from torch.autograd import profiler

from recsys_lab.train.unprofiled import skip_empty_hooks, skip_ranges


@pytest.fixture(autouse=True)
def _skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__enter__", "__exit__"):
        monkeypatch.setattr(profiler.record_function, name, getattr(profiler.record_function, name))  # put back at the end
    skip_ranges.__wrapped__()


def test_a_profiler_sees_named_ranges() -> None:
    with profiler.profile() as seen, profiler.record_function("a range"):
        torch.ones(2).sum()
    assert any(event.key == "a range" for event in seen.key_averages())


def test_without_a_profiler_nothing_is_begun() -> None:
    with profiler.record_function("a range") as named:
        assert named.record is None


def test_a_profiler_may_begin_and_end_within_a_range() -> None:
    with profiler.record_function("outer"), profiler.profile() as seen, profiler.record_function("inner"):
        torch.ones(2).sum()
    keys = {event.key for event in seen.key_averages()}
    assert "inner" in keys and "outer" not in keys


class Noting(pl.Callback):
    """Writes down each hook of a training that Lightning calls, and which of the module's is said to run."""

    def __init__(self, name: str, seen: list):
        self.name, self.seen = name, seen

    @property
    def state_key(self) -> str:
        return self.name

    def _note(self, hook: str, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.seen.append((self.name, hook, module._current_fx_name, trainer.global_step))


def noting(*hooks: str) -> type[Noting]:
    def method(hook: str):
        return lambda self, trainer, module, *_, **__: self._note(hook, trainer, module)

    return type("Noting", (Noting,), {hook: method(hook) for hook in hooks})


class OneWeight(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("loss", self.layer(batch).sum())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def hooks_seen(folder: Path) -> list:
    """Of a training with two of our callbacks, early stopping and checkpoints."""
    torch.manual_seed(0)
    seen: list = []
    every = [hook for hook in vars(pl.Callback) if hook.startswith("on_") or hook in ("setup", "teardown")]
    ours = [noting(*every)("all", seen), noting("on_train_batch_end", "on_validation_end")("two", seen)]
    batches = torch.utils.data.DataLoader(torch.rand(6, 2), batch_size=2)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    with_lightnings = [*ours, EarlyStopping("loss"), ModelCheckpoint(folder, monitor="loss")]
    trainer = pl.Trainer(max_epochs=2, callbacks=with_lightnings, default_root_dir=str(folder), **quiet)
    trainer.fit(OneWeight(), batches, batches)
    return seen


def test_callbacks_see_the_hooks_that_they_have_in_lightnings_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = hooks_seen(tmp_path / "usual")
    monkeypatch.setattr(call, "_call_callback_hooks", call._call_callback_hooks)  # put back at the end
    skip_empty_hooks.__wrapped__()
    assert hooks_seen(tmp_path / "ours") == usual
    assert {hook for name, hook, *_ in usual if name == "two"} == {"on_train_batch_end", "on_validation_end"}
    assert len({hook for name, hook, *_ in usual if name == "all"}) > 20
