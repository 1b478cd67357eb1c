"""The number formats in which rows and gradients travel: every exchange of every sharder converts through the codecs made here.

| what travels | format |
|---|---|
| pooled rows and rows of sequences, to the ranks whose samples want them | `forward_comm` |
| their gradients, back to the ranks that hold the rows | `backward_comm` |
| gradients that are averaged: the dense arch's, tower modules', those of rows that several ranks hold alike | `dense_comm` |

Ids, lengths and sizes are integers and stay so. A sum that a collective makes (reduce-scatter, all-reduce) is made in the format that
travels, which is never FP8. Everything is FP32 again before anything is computed with it.

Gradients are multiplied by 1,024 before they become FP16, and divided afterwards, as FP32. A sample's gradient is about 1 / B. FP16 loses
bits below 6e-5 and everything below 6e-8. FP16 ends at 65,504; a gradient saturates at 64, in an average at 32 so that no sum overflows.
BF16 has FP32's range with 8 of its 24 binary digits: it needs neither. FP8 has a scale a row.
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
from recsys_lab.precision.policy import SCALE_BYTES, SUMMED

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: That rows and gradients may travel in.
SENT = (*DTYPES, "fp8")
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

    @property
    def of_sums(self) -> Codec:
        """Of an exchange whose collective sums."""
        return self

    def width(self, columns: int) -> int:
        """Elements in which a row of so many columns travels."""
        return columns

    def share(self, gradients: torch.Tensor, ranks: int) -> torch.Tensor:
        """What one of so many `ranks` adds to the mean of theirs, encoded."""
        part = gradients / ranks
        if self.dtype == torch.float16:
            part.clamp_(-MOST_OF_A_MEAN / ranks, MOST_OF_A_MEAN / ranks)
        return self.encode(part)


class ScaledRows(Codec):
    """FP8. A row [C] travels as C bytes and its scale, an FP32 number of four more; the largest of a row is the format's largest.

    Rows of samples are E4M3, gradients E5M2, as in FBGEMM's row-wise codec, which has no CPU kernel. `columns`: C of rows that come one
    after another in a vector, as TorchRec's exchange of sequences has them; 0: rows are of a matrix.
    """

    def __init__(self, eight_bits: torch.dtype, of_sums: Codec, columns: int = 0):
        QuantizedCommCodec.__init__(self, SparseType.FP8)
        self.dtype, self.eight_bits, self.columns, self._of_sums = torch.uint8, eight_bits, columns, of_sums

    @property
    def of_sums(self) -> Codec:
        return self._of_sums

    def width(self, columns: int) -> int:
        return columns and columns + SCALE_BYTES["fp8"]

    def encode(self, input_tensor: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        rows = input_tensor.view(-1, self.columns) if self.columns else input_tensor
        if not rows.shape[1]:
            return rows.to(self.dtype)
        scale = rows.abs().amax(1, keepdim=True) / torch.finfo(self.eight_bits).max
        scale = scale.clamp(min=torch.finfo(torch.float32).tiny)
        sent = torch.cat([(rows / scale).to(self.eight_bits).view(self.dtype), scale.view(self.dtype)], dim=1)
        return sent.view(-1) if self.columns else sent

    def decode(self, input_tensor: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        sent = input_tensor.view(-1, self.width(self.columns)) if self.columns else input_tensor
        if not sent.shape[1]:
            return sent.float()
        columns = sent.shape[1] - SCALE_BYTES["fp8"]
        scale = sent[:, columns:].clone(memory_format=torch.contiguous_format).view(torch.float32)  # a copy begins at a whole number
        rows = sent[:, :columns].view(self.eight_bits).float() * scale
        return rows.view(-1) if self.columns else rows

    def calc_quantized_size(self, input_len: int, ctx: Any = None) -> int:
        return input_len // self.columns * self.width(self.columns)

    def in_a_vector(self, columns: int) -> ScaledRows:
        return ScaledRows(self.eight_bits, self._of_sums, columns)


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
        summed = QuantizedCommCodecs(self.forward.of_sums, self.backward.of_sums)
        return {
            exchange.name: summed if exchange == CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER else self.of_sequences(0) for exchange in EXCHANGES
        }

    @property
    def scaled(self) -> bool:
        """Whether rows travel with scales, which TorchRec's exchanges of pooled rows cannot: they know no rows."""
        return isinstance(self.forward, ScaledRows) or isinstance(self.backward, ScaledRows)

    def of_sequences(self, columns: int) -> QuantizedCommCodecs:
        """For TorchRec's exchange of rows of so many columns."""
        both = (one.in_a_vector(columns) if isinstance(one, ScaledRows) else one for one in (self.forward, self.backward))
        return QuantizedCommCodecs(*both)


def exact_share(ranks: int) -> bool:
    """Whether a quotient by so many `ranks` is the product with 1 / ranks, to the bit: by a power of two."""
    return ranks & (ranks - 1) == 0


def gradient_codec(name: str) -> Codec:
    return Codec(name, GRADIENT_SCALE if name == "fp16" else 1.0)


def wire_formats(precision: Precision) -> WireFormats:
    """Raises UserError for a format that no exchange here has."""
    for part in ("forward_comm", "backward_comm", "dense_comm"):
        if getattr(precision, part) not in SENT:
            raise UserError(
                "this executor does not send this format",
                where=f"precision.{part}",
                given=getattr(precision, part),
                allowed=", ".join(SENT),
                remedy="mode=simulate prices it",
            )
    fp16, bf16 = map(Codec, SUMMED["fp8"])
    forward = ScaledRows(torch.float8_e4m3fn, fp16) if precision.forward_comm == "fp8" else Codec(precision.forward_comm)
    backward = ScaledRows(torch.float8_e5m2, bf16) if precision.backward_comm == "fp8" else gradient_codec(precision.backward_comm)
    return WireFormats(forward, backward, gradient_codec(precision.dense_comm))


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
