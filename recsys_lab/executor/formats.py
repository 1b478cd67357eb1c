"""The number formats in which rows and gradients travel: every exchange of every sharder converts through the codecs made here.

| what travels | format |
|---|---|
| pooled rows and rows of sequences, to the ranks whose samples want them | `forward_comm` |
| their gradients, back to the ranks that hold the rows | `backward_comm` |
| gradients that are averaged: the dense arch's, tower modules', those of rows that several ranks hold alike | `dense_comm` |

Ids, lengths and sizes are integers and stay so. A sum that a collective makes (reduce-scatter, all-reduce) is made in the format that
travels. Everything is FP32 again before anything is computed with it.

Gradients are multiplied by 1,024 before they become FP16, and divided afterwards, as FP32. A sample's gradient is about 1 / B. FP16 loses
bits below 6e-5 and everything below 6e-8. FP16 ends at 65,504; a gradient saturates at 64, in an average at 32 so that no sum overflows.
BF16 has FP32's range with 8 of its 24 binary digits: it needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from fbgemm_gpu.quantize_comm import QuantizedCommCodec
from fbgemm_gpu.split_embedding_configs import SparseType
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.types import CommOp, QuantizedCommCodecs

from recsys_lab.errors import UserError
from recsys_lab.executor.times import waited
from recsys_lab.executor.torch_private import average_in_cpp
from recsys_lab.precision import Precision

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
GRADIENT_SCALE = 1024.0
MOST_OF_A_MEAN = 32.0
#: TorchRec's exchanges of rows.
EXCHANGES = (CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL, CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER, CommOp.SEQUENCE_EMBEDDINGS_ALL_TO_ALL)


class Codec(QuantizedCommCodec):
    """FBGEMM's, as TorchRec's exchanges want it, with a `scale` that works: FBGEMM divides by its own in FP16, where what it had saved
    is lost again. `encode` FP32 -> `dtype`, `decode` back; FP32 passes as it is.

    TorchRec's own registry would make FP16 of BF16 on CPU, where gloo has both.
    """

    def __init__(self, name: str, scale: float = 1.0):
        super().__init__(SparseType(name))
        self.dtype, self.scale = DTYPES[name], scale

    def encode(self, input_tensor: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        if self.dtype == torch.float32:
            return input_tensor
        return super().encode(input_tensor if self.scale == 1 else input_tensor * self.scale, ctx)

    def decode(self, input_tensor: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        if self.dtype == torch.float32:
            return input_tensor
        decoded = super().decode(input_tensor, ctx)
        return decoded if self.scale == 1 else decoded / self.scale

    def share(self, gradients: torch.Tensor, ranks: int) -> torch.Tensor:
        """What one of so many `ranks` adds to the mean of theirs, encoded."""
        part = gradients / ranks
        if self.dtype == torch.float16:
            part.clamp_(-MOST_OF_A_MEAN / ranks, MOST_OF_A_MEAN / ranks)
        return self.encode(part)


@dataclass(frozen=True)
class WireFormats:
    """Of one run, by what travels: rows, their gradients of the backward pass, gradients that are averaged."""

    forward: Codec
    backward: Codec
    gradients: Codec

    @property
    def torchrec(self) -> dict[str, QuantizedCommCodecs] | None:
        """For TorchRec's sharded collections."""
        if self.forward.dtype == self.backward.dtype == torch.float32:
            return None
        return {exchange.name: QuantizedCommCodecs(self.forward, self.backward) for exchange in EXCHANGES}


def exact_share(ranks: int) -> bool:
    """Whether a quotient by so many `ranks` is the product with 1 / ranks, to the bit: by a power of two."""
    return ranks & (ranks - 1) == 0


def gradient_codec(name: str) -> Codec:
    return Codec(name, GRADIENT_SCALE if name == "fp16" else 1.0)


def wire_formats(precision: Precision) -> WireFormats:
    """Raises UserError for a format that no exchange here has."""
    for part in ("forward_comm", "backward_comm", "dense_comm"):
        if getattr(precision, part) not in DTYPES:
            raise UserError(
                "this executor does not send this format",
                where=f"precision.{part}",
                given=getattr(precision, part),
                allowed=", ".join(DTYPES),
                remedy="mode=simulate prices it",
            )
    return WireFormats(Codec(precision.forward_comm), gradient_codec(precision.backward_comm), gradient_codec(precision.dense_comm))


def average_in(module: nn.Module, codec: Codec, overlap: bool = True) -> None:
    """Have `module`, if it is DistributedDataParallel, send its gradients in the codec's format. Without `overlap` the backward pass waits
    for each bucket (Kalamkar et al. 2020, section IV-C).
    """
    if not isinstance(module, DistributedDataParallel):
        return
    converted = next(module.parameters()).dtype != codec.dtype
    if overlap and not converted:  # DistributedDataParallel's own will do
        ranks = dist.get_world_size(module.process_group)
        if exact_share(ranks) and module.device_type == "cpu":  # in C++: a bucket is divided at once, not parameter by parameter
            average_in_cpp(module)
        return

    def average(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Where nothing is converted, as DistributedDataParallel does it: times 1 / R, then the sum."""
        gradients = bucket.buffer()
        sent = codec.share(gradients.float(), group.size()) if converted else gradients.mul_(1.0 / group.size())
        work = dist.all_reduce(sent, group=group, async_op=True)
        assert work is not None
        future = work.get_future().then(lambda _: gradients.copy_(codec.decode(sent)) if converted else gradients)
        if not overlap:
            with waited("dense"):
                work.wait()
        return future

    # Its check of the hook's annotations does not know them as strings: a lambda has none.
    module.register_comm_hook(module.process_group, lambda group, bucket: average(group, bucket))
