"""What types cannot say: values that no run can have, and combinations that cannot go together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.options import MODES
from recsys_lab.errors import UserError, did_you_mean

CHOICES: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "optimizer.dense.name": ("sgd", "adagrad", "adam"),
    "optimizer.sparse.name": ("sgd", "adagrad", "row_wise_adagrad", "adam"),
    "optimizer.schedule.name": ("constant", "linear", "cosine", "step"),
    "trainer.early_stopping.metric": ("auc", "ne", "log_loss", "ndcg_10", "hit_rate_10"),
}
AT_LEAST: dict[str, float] = {
    "seed": 0,
    "data.batch_size": 1,
    "data.prefetch_batches": 1,
    "simulate.batch_size": 1,
    "launcher.hosts": 1,
    "launcher.ranks_per_host": 1,
    "trainer.max_epochs": 1,
    "trainer.max_steps": -1,
    "trainer.checkpoint_every_steps": 0,
    "trainer.log_every_steps": 1,
    "trainer.measure_steps": 1,
    "trainer.replan_saving": 0,
    "trainer.early_stopping.patience": 0,
    "trainer.evaluate_every_epochs": 0,
    "trainer.evaluate_train_rows": 0,
    "trainer.evaluate_pairs": 0,
    "optimizer.dense.lr": 0,
    "optimizer.sparse.lr": 0,
    "optimizer.schedule.warmup_steps": 0,
}

#: The number formats that training has, by part; mode=simulate prices others too.
TRAINED = {
    "table": ("fp32", "fp16", "bf16", "bf16_master", "split_bf16", "split_bf16_8"),
    "dense": ("fp32", "bf16", "bf16_master", "split_bf16", "split_bf16_8"),
    "compute": ("fp32", "bf16"),
    "forward_comm": ("fp32", "fp16", "bf16"),
    "backward_comm": ("fp32", "fp16", "bf16"),
}


def check_values(config: DictConfig) -> None:
    """Raises UserError for the first value or combination that cannot be."""
    for key, allowed in CHOICES.items():
        _one_of(key, OmegaConf.select(config, key), allowed)
    for key, least in AT_LEAST.items():
        value = OmegaConf.select(config, key)
        if value is not None and value < least:
            raise UserError("too small", where=key, given=value, allowed=f"{least:g} or more")
    if config.trainer.max_steps == 0:
        raise UserError("nothing to train", where="trainer.max_steps", given=0, allowed="-1 (all epochs) or 1 and more")
    ranks = config.launcher.hosts * config.launcher.ranks_per_host
    if config.data.batch_size < ranks:
        raise UserError(
            "a step needs at least one sample a rank",
            where="data.batch_size",
            given=f"{config.data.batch_size} for {ranks} ranks",
            allowed=f"{ranks} or more",
            remedy="or use fewer ranks: launcher.hosts, launcher.ranks_per_host",
        )
    for part, trained in TRAINED.items():
        if config.mode in ("auto", "train") and config.precision[part] not in trained:
            raise UserError(
                "training has no such format",
                where=f"precision.{part}",
                given=config.precision[part],
                allowed=", ".join(trained),
                remedy="mode=simulate prices other formats",
            )
    if (config.precision.dense == "fp32") != (config.precision.compute == "fp32"):
        raise UserError(
            "the dense part computes in the format in which the model has its weights",
            where="precision.compute",
            given=f"{config.precision.compute} for weights in {config.precision.dense}",
            allowed="fp32 for weights in fp32, else bf16",
            remedy="set both: precision.compute=bf16 precision.dense=bf16_master, or precision=bf16 or split_sgd_bf16",
        )
    trainer = config.trainer
    if not trainer.evaluate_every_epochs and (trainer.early_stopping.patience or trainer.restore_best):
        raise UserError(
            "early stopping and restore_best need evaluations on the way",
            where="trainer.evaluate_every_epochs",
            given=0,
            allowed="1 or more",
        )
    next_item = config.model.get("objective") == "next_item"
    metric = trainer.early_stopping.metric
    if (trainer.early_stopping.patience or trainer.restore_best) and (metric in ("ndcg_10", "hit_rate_10")) != next_item:
        raise UserError(
            "the validation split has no such metric",
            where="trainer.early_stopping.metric",
            given=metric,
            allowed="ndcg_10, hit_rate_10" if next_item else "auc, ne, log_loss",
        )
    if not 0 < config.ablation.level < 1:
        raise UserError("not a probability", where="ablation.level", given=config.ablation.level, allowed="between 0 and 1")
    clip = config.trainer.gradient_clip_norm
    if clip is not None and clip <= 0:
        raise UserError("too small", where="trainer.gradient_clip_norm", given=clip, allowed="above 0, or null for no clipping")


def _one_of(key: str, given: Any, allowed: Iterable[str]) -> None:
    if given not in allowed:
        raise UserError("no such choice", where=key, given=given, allowed=", ".join(allowed), remedy=did_you_mean(str(given), allowed))
