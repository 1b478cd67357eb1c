"""The precision policy.

It says how tables and dense weights are stored, what the dense arch computes in, and the format of each exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.schema import check_fields
from recsys_lab.errors import UserError
from recsys_lab.tables.spec import ELEMENT_BYTES, TABLE_FORMATS

#: By part, the formats that exist. Not every executor trains all of them.
FORMATS: dict[str, tuple[str, ...]] = {
    "table": TABLE_FORMATS,
    "dense": ("fp32", "bf16", "bf16_master", "split_bf16", "split_bf16_8"),
    "compute": ("fp32", "fp16", "bf16"),
    "forward_comm": ("fp32", "fp16", "bf16", "fp8", "int8"),
    "backward_comm": ("fp32", "fp16", "bf16", "fp8", "int8"),
    "dense_comm": ("fp32", "fp16", "bf16"),
}
#: FP8 in an exchange whose collective sums: (forward, backward), as TorchRec's codec has it.
SUMMED = {"fp8": ("fp16", "bf16")}
#: That travel with each row: FP8's scale, in FP32.
SCALE_BYTES = {"fp8": 4}
NEAREST, STOCHASTIC = ROUNDINGS = ("nearest", "stochastic")


@dataclass(frozen=True)
class Precision:
    """Formats by part. `table` and `dense`: how weights are stored between steps; `compute`: the dense arch's forward and backward;
    `forward_comm` and `backward_comm`: the embedding exchange; `dense_comm`: the all-reduce of dense gradients.

    Stored weights: `bf16_master` is a BF16 model beside FP32 master weights; `split_bf16` is Split-SGD-BF16, the high and the low
    half of each FP32 weight as two 16-bit tensors; `split_bf16_8` keeps 8 bits of the low half (CPU DLRM, section VII).

    `rounding`: of an updated row as it is stored. Stochastic is for FP16 tables: up or down, with the exact value as its mean. It is what
    the CPU DLRM paper tried without success (section VII, after Zhang et al. 2018).
    """

    name: str
    table: Annotated[str, OneOf(FORMATS["table"])] = "fp32"
    dense: Annotated[str, OneOf(FORMATS["dense"])] = "fp32"
    compute: Annotated[str, OneOf(FORMATS["compute"])] = "fp32"
    forward_comm: Annotated[str, OneOf(FORMATS["forward_comm"])] = "fp32"
    backward_comm: Annotated[str, OneOf(FORMATS["backward_comm"])] = "fp32"
    dense_comm: Annotated[str, OneOf(FORMATS["dense_comm"])] = "fp32"
    rounding: Annotated[str, OneOf(ROUNDINGS)] = NEAREST

    def __post_init__(self) -> None:
        check_fields(self, "precision")
        if self.rounding == STOCHASTIC and self.table != "fp16":
            raise UserError(
                "stochastic rounding is for FP16 tables",
                where="precision.rounding",
                given=f"{self.rounding} with table {self.table}",
                allowed=NEAREST,
                remedy="precision=fp16_tables",
            )

    def forward_bytes(self, numbers: Any, rows: Any, summed: bool = False) -> Any:
        """Of so many `numbers` in so many `rows` on their way to the samples. `summed`: the collective adds them up."""
        return _wire_bytes(SUMMED.get(self.forward_comm, (self.forward_comm,))[0] if summed else self.forward_comm, numbers, rows)

    def backward_bytes(self, numbers: Any, rows: Any, summed: bool = False) -> Any:
        """Of the gradients of so many `numbers` in so many `rows` on their way back. `summed`: on the way there they were."""
        return _wire_bytes(SUMMED.get(self.backward_comm, (self.backward_comm,))[-1] if summed else self.backward_comm, numbers, rows)

    def both_ways_bytes(self, numbers: Any, rows: Any, summed: bool = False) -> Any:
        return self.forward_bytes(numbers, rows, summed) + self.backward_bytes(numbers, rows, summed)

    @property
    def dense_comm_bytes(self) -> int:
        return ELEMENT_BYTES[self.dense_comm]


def _wire_bytes(format_name: str, numbers: Any, rows: Any) -> Any:
    return numbers * ELEMENT_BYTES[format_name] + rows * SCALE_BYTES.get(format_name, 0)
