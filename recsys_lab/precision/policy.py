"""The precision policy: formats of the tables, of the dense compute and of what travels."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.errors import UserError
from recsys_lab.tables.spec import ELEMENT_BYTES


@dataclass(frozen=True)
class Precision:
    """Formats by part: fp32, fp16 or bf16. `forward_comm` and `backward_comm` are the embedding exchange's."""

    name: str
    table: str = "fp32"
    compute: str = "fp32"
    forward_comm: str = "fp32"
    backward_comm: str = "fp32"
    dense_comm: str = "fp32"

    def __post_init__(self) -> None:
        for part in ("table", "compute", "forward_comm", "backward_comm", "dense_comm"):
            if getattr(self, part) not in ("fp32", "fp16", "bf16"):
                raise UserError("unknown number format", where=f"precision.{part}", given=getattr(self, part), allowed="fp32, fp16, bf16")

    @property
    def forward_comm_bytes(self) -> int:
        return ELEMENT_BYTES[self.forward_comm]

    @property
    def backward_comm_bytes(self) -> int:
        return ELEMENT_BYTES[self.backward_comm]

    @property
    def dense_comm_bytes(self) -> int:
        return ELEMENT_BYTES[self.dense_comm]
