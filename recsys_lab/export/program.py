"""The dense arch as a program of torch.export: what comes after the tables, for any number of samples.

click      dense [B, K], rows by feature [B, D]                -> logits [B]
sequences  rows by feature [B, T, D], their lengths [B]        -> logits [B]
next item  the same                                            -> users [B, D], to be multiplied with items' vectors: logits
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recsys_lab.data.protocol import CONTEXT, SIDE
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.history import CANDIDATE, HISTORY
from recsys_lab.models.jagged import PaddedRows
from recsys_lab.models.next_item import TOLD
from recsys_lab.tables import Table

#: Of what the program is traced with. Any other number of each will do.
_SAMPLES, _LENGTH = 3, 5
_MOST = 1 << 20


class DenseArch(nn.Module):
    """`model` without its tables, with one signature for all kinds: what a kind does not read is None or empty."""

    def __init__(self, model: ClickModel):
        super().__init__()
        self.model = model

    def forward(self, dense: Tensor | None, rows: dict[str, Tensor], lengths: dict[str, Tensor]) -> Tensor:
        """See the top of this file."""
        if not lengths:
            return self.model.predict(dense, rows)
        sequences: Any = {name: PaddedRows(rows[name], lengths[name]) for name in rows}
        if self.model.objective != "next_item":
            return self.model.predict(dense, sequences)
        return self.model.users(sequences)  # type: ignore[operator]  # a model for the next item has both


def features_read(model: ClickModel, tables: tuple[Table, ...]) -> dict[str, Table]:
    """By feature, in the model's order, its table. Without those that only training reads."""
    left_out = TOLD if model.objective == "next_item" else ()
    return {name: table for table in tables for name in table.features if name not in left_out}


def program_of(model: ClickModel, tables: tuple[Table, ...], dense_width: int) -> torch.export.ExportedProgram:
    """Traces the dense arch. Raises UserError for a model that torch.export cannot trace."""
    arguments, shapes = example(model, tables, dense_width)
    try:
        with torch.no_grad():
            return torch.export.export(DenseArch(model), arguments, dynamic_shapes=shapes)
    except (RuntimeError, ValueError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = "in a model of your own, let no shape or branch depend on values"
        raise UserError(f"torch.export cannot trace the dense arch ({first})", where=type(model).__name__, remedy=remedy) from None


def example(model: ClickModel, tables: tuple[Table, ...], dense_width: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments of the program, and which of their sizes may be any number."""
    read = features_read(model, tables)
    samples = torch.export.Dim("samples", min=1, max=_MOST)
    dense = torch.zeros(_SAMPLES, dense_width) if dense_width else None
    shape_of_dense = {0: samples} if dense_width else None
    if all(table.pooling != "none" for table in read.values()):
        rows = {name: torch.zeros(_SAMPLES, table.dim) for name, table in read.items()}
        return (dense, rows, {}), (shape_of_dense, {name: {0: samples} for name in rows}, {})
    sizes = {name: _length_of(name) for name in read}
    rows = {name: torch.zeros(_SAMPLES, 1 if sizes[name] is None else _LENGTH, table.dim) for name, table in read.items()}
    lengths = {name: torch.full((_SAMPLES,), own.shape[1]) for name, own in rows.items()}
    shapes = {name: {0: samples} if size is None else {0: samples, 1: size} for name, size in sizes.items()}
    return (dense, rows, lengths), (shape_of_dense, shapes, {name: {0: samples} for name in lengths})


def _length_of(feature: str) -> Any:
    """T of a feature: that of the history, one of its own, or None of a candidate and of what is known of a user, which are one."""
    if feature in CANDIDATE or feature.startswith(CONTEXT):
        return None
    return torch.export.Dim("length" if feature in HISTORY or feature.startswith(SIDE) else f"length_of_{feature}", min=1, max=_MOST)


def write_onnx(program: torch.export.ExportedProgram, file: Path) -> str:
    """Writes `program` for ONNX. What there is to say: nothing, or why there is no file."""
    if lacking := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        return f"no ONNX file: pip install {' '.join(lacking)}"
    try:
        torch.onnx.export(program, (), str(file), dynamo=True, external_data=False, output_names=["output"], verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        file.unlink(missing_ok=True)
        return f"no ONNX file: torch.onnx cannot write this dense arch ({(str(error).splitlines() or [''])[0]})"
    return ""
