"""What one option's declaration cannot say: combinations that cannot go together."""

from __future__ import annotations

from omegaconf import DictConfig

from recsys_lab.base.store_names import CACHED, DISK_HOST_CACHED
from recsys_lab.config.options import JUDGES, PREDICT, STARTS_RANKS, TRAINS
from recsys_lab.errors import UserError

#: The number formats that training has, by part; mode=simulate prices others too.
TRAINED = {
    "table": ("fp32", "fp16", "bf16", "bf16_master", "split_bf16", "split_bf16_8"),
    "dense": ("fp32", "bf16", "bf16_master", "split_bf16", "split_bf16_8"),
    "compute": ("fp32", "bf16"),
    "forward_comm": ("fp32", "fp16", "bf16", "fp8"),
    "backward_comm": ("fp32", "fp16", "bf16", "fp8"),
}


def check_values(config: DictConfig) -> None:
    """Raises UserError for the first combination that cannot be."""
    if config.mode in JUDGES and config.get("start_from") is None:
        remedy = "name a trained run: start_from=RUN_FOLDER"
        raise UserError("no trained model", where="start_from", given=f"null with mode={config.mode}", remedy=remedy)
    if config.get("predictions") is not None and config.mode not in JUDGES:
        allowed = "mode=evaluate or mode=predict"
        raise UserError("predictions are of a trained model", where="predictions", given=f"mode={config.mode}", allowed=allowed)
    if config.get("predictions") is None and config.mode == PREDICT:
        raise UserError("no file to write", where="predictions", given="null", remedy="name one: predictions=FILE.parquet")
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
        if config.mode in STARTS_RANKS and config.precision[part] not in trained:
            raise UserError(
                "training has no such format",
                where=f"precision.{part}",
                given=config.precision[part],
                allowed=", ".join(trained),
                remedy="mode=simulate prices other formats",
            )
    sharder = config.sharder
    if sharder.cached_share is not None and sharder.store not in CACHED:
        raise UserError(
            "a share of rows is cached of a store with a cache",
            where="sharder.store",
            given=f"{sharder.store} with sharder.cached_share={sharder.cached_share:g}",
            allowed=", ".join(CACHED),
        )
    if sharder.host_share is not None and (sharder.store != DISK_HOST_CACHED or sharder.host_share < (sharder.cached_share or 0.0)):
        raise UserError(
            "the host's memory is a level of its own between disk and cache, and holds what the cache holds",
            where="sharder.host_share",
            given=f"{sharder.host_share:g} with sharder.store={sharder.store}",
            allowed=f"{sharder.cached_share or 0:g} to 1 with {DISK_HOST_CACHED}",
            remedy=f"sharder.store={DISK_HOST_CACHED} sharder.host_share={max(sharder.host_share, sharder.cached_share or 0.0):g}",
        )
    if sharder.cached_share is not None and sharder.memory_budget_gb is not None:
        raise UserError(
            "both say how large caches are",
            where="sharder.cached_share",
            given=f"{sharder.cached_share:g} with sharder.memory_budget_gb={sharder.memory_budget_gb:g}",
            remedy="name one of them",
        )
    if (config.precision.dense == "fp32") != (config.precision.compute == "fp32"):
        raise UserError(
            "the dense arch computes in the format in which the model has its weights",
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
    if next_item and config.mode in TRAINS and config.choices.get("data") == "random" and config.model.rows is None:
        raise UserError(
            "random histories have no next item to learn",
            where="model.objective",
            given="next_item with data=random",
            allowed="click",
            remedy="mode=simulate or data=interactions",
        )
    if config.simulate.full_rows_hosts is not None and config.mode in TRAINS:
        raise UserError(
            "it would also change the rows that train here",
            where="simulate.full_rows_hosts",
            given=f"{config.simulate.full_rows_hosts} with mode={config.mode}",
            allowed="null where something trains",
            remedy="mode=simulate or mode=plan",
        )
    metric = trainer.early_stopping.metric
    if (trainer.early_stopping.patience or trainer.restore_best) and (metric in ("ndcg_10", "hit_rate_10")) != next_item:
        raise UserError(
            "the validation split has no such metric",
            where="trainer.early_stopping.metric",
            given=metric,
            allowed="ndcg_10, hit_rate_10" if next_item else "auc, ne, log_loss",
        )
