"""What of Lightning and TorchRec cannot work with sharded tables. Each is refused with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from torch import nn
from torchrec.modules.fused_embedding_modules import FusedOptimizerModule
from torchrec.modules.mc_embedding_modules import BaseManagedCollisionEmbeddingCollection

from recsys_lab.errors import UserError
from recsys_lab.executor.torch_private import has_optimizer_in_backward
from recsys_lab.lightning.precision import ShardedMixedPrecision, ShardedPrecision

PRECISIONS = ("32-true", "bf16-mixed")


def check_options(options: Mapping[str, Any]) -> None:
    """Raises UserError for options of DDPStrategy that give wrong weights here."""
    cannot = (
        (options.get("start_method", "popen") != "popen", "start_method", "a forked process cannot give its shards back", "popen"),
        (options.get("model_averaging_period") is not None, "model_averaging_period", "shards are not averaged", "None"),
    )
    _refuse(cannot, "ShardedStrategy")


def check_trainer(trainer: Any) -> None:
    """Raises UserError for what gives wrong weights when each rank has other shards."""
    averages = any(isinstance(one, StochasticWeightAveraging | WeightAveraging) for one in trainer.callbacks)
    known_plugin = type(trainer.precision_plugin) in (Precision, MixedPrecision, ShardedPrecision, ShardedMixedPrecision)
    in_background = isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO)
    cannot = (
        (trainer.precision not in PRECISIONS, "precision", "they have no such format here", " or ".join(PRECISIONS)),
        (not known_plugin, "plugins", "they clip by the norm over all ranks", "no precision plugin of your own"),
        (averages, "callbacks", "shards cannot be copied", "no averaging of weights"),
        (in_background, "plugins", "a checkpoint gets its name when all ranks have written", "no AsyncCheckpointIO"),
    )
    _refuse(cannot, "Trainer")


def check_module(module: nn.Module) -> None:
    """Raises UserError for collections that would train wrongly, or not at all."""
    for path, part in module.named_modules():
        if isinstance(part, FusedOptimizerModule):
            raise UserError("its optimizer runs in the backward pass", where=path, remedy="use EmbeddingBagCollection")
        if isinstance(part, BaseManagedCollisionEmbeddingCollection):
            raise UserError("rows that are given out as ids come are not sharded", where=path, remedy="hash ids into the table's rows")
    for name, parameter in module.named_parameters():
        if has_optimizer_in_backward(parameter):
            remedy = "give its parameters to configure_optimizers, without apply_optimizer_in_backward"
            raise UserError("an optimizer runs in the backward pass", where=name, remedy=remedy)


def check_batches(counts: Any, where: str, device: torch.device) -> None:
    """Raises UserError where ranks have different numbers of batches: the others would wait for the one that has fewer. Collective."""
    own = [float(count) for count in (counts if isinstance(counts, list) else [counts])]
    # [least, most negated]: one reduction gives both
    both = torch.tensor([own, [-count for count in own]], dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device)
    dist.all_reduce(both, dist.ReduceOp.MIN)
    for least, most in zip(both[0].tolist(), (-both[1]).tolist()):
        if least != most:
            raise UserError(
                "ranks have different numbers of batches, and each look-up needs all ranks",
                where=where,
                given=f"{least:g} to {most:g}",
                remedy=f"limit_{where}_batches={least:g}, or as many samples as ranks times batch size divide",
            )


def _refuse(cannot: tuple[tuple[bool, str, str, str], ...], of: str) -> None:
    for is_asked, where, why, allowed in cannot:
        if is_asked:
            raise UserError(f"not with sharded tables: {why}", where=f"{of}({where})", allowed=allowed)
