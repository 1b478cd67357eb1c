"""What training in any precision must equal: the same model in one process, whose weights are FP32 and of which forward and backward
see what the precision lets them see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits
from torchrec.sparse.jagged_tensor import KeyedTensor

from recsys_lab.kernels.halves import join, split
from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.executor.reference import LR, SEED, UPDATES, Concat, Outcome, Sample, samples
from tests.executor.tower_cases import TowerConcat, Towers

CPU = torch.device("cpu")
STEPS, ROWS, DENSE = 6, 16, 3
SPLIT = Precision("split_sgd_bf16", "split_bf16", "split_bf16", "bf16", dense_comm="bf16")
MASTER = Precision("bf16", "bf16_master", "bf16_master", "bf16", dense_comm="bf16")
FP16_TABLES = Precision("fp16_tables", "fp16")
#: Formats in which weights are rounded when they are stored: the relative distance of two neighbours.
STEP_OF = {"fp16": 2.0**-10, "bf16": 2.0**-7, "split_bf16_8": 2.0**-15}


@dataclass(frozen=True)
class Weights:
    """By name, those of tables and of the dense part, in FP32."""

    tables: dict[str, Tensor]
    dense: dict[str, Tensor]

    @property
    def all(self) -> dict[str, Tensor]:
        return self.tables | self.dense


def seen(format: str, weight: Tensor) -> Tensor:
    """What forward and backward see of FP32 weights."""
    if format in ("split_bf16", "split_bf16_8"):
        return split(weight)[0]
    return weight.to({"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "bf16_master": torch.bfloat16}[format])


def kept(format: str, weight: Tensor) -> Tensor:
    """What is left of FP32 weights once they are stored."""
    if format == "split_bf16_8":
        return join(*split(weight, torch.uint8))
    return weight.to({"fp16": torch.float16, "bf16": torch.bfloat16}.get(format, torch.float32)).float()


def stored_as(precision: Precision, tables: tuple[Table, ...]) -> tuple[Table, ...]:
    return tuple(replace(table, dtype=precision.table) for table in tables)


def batches_of(tables: tuple[Table, ...]) -> list[Sample]:
    return samples(tables, STEPS, ROWS, DENSE)


@cache
def trained(tables: tuple[Table, ...], towers: Towers | None, precision: Precision, optimizer: str) -> tuple[Weights, Weights]:
    """At first, and after training. `towers` of the model that has modules for them; None: of the model without."""
    model = Concat(tables, DENSE, CPU) if towers is None else TowerConcat(tables, DENSE, CPU, towers)
    initialise_dense(model, SEED, CPU)
    compute = torch.bfloat16 if precision.compute == "bf16" else torch.float32
    model.embeddings.register_forward_hook(lambda _, __, pooled: _cast(pooled, compute))
    names = {f"embeddings.embedding_bags.{t.name}.weight": t.name for t in tables}
    first = {t.name: kept(precision.table, initial_weight(t, 0, t.rows, 0, t.dim, SEED)) for t in tables}
    weights = {name: weight.clone() for name, weight in first.items()}
    dense = {name: kept(precision.dense, p.detach().clone()) for name, p in model.named_parameters() if name not in names}
    first_dense = {name: weight.clone() for name, weight in dense.items()}
    moves, state = torch.optim.SGD(dense.values(), lr=LR), {name: {} for name in weights}
    for step, batch in enumerate(batches_of(tables), start=1):
        copies = {name: seen(precision.dense, weight).clone().requires_grad_() for name, weight in dense.items()}
        rows = {name: seen(precision.table, weights[t]).float().clone().requires_grad_() for name, t in names.items()}
        logits = functional_call(model, copies | rows, (batch.dense.to(compute), batch.sparse)).float()
        binary_cross_entropy_with_logits(logits, batch.labels).backward()
        for name, weight in dense.items():
            weight.grad = _gradient(copies[name]).float()
        moves.step()
        for weight in dense.values():
            weight.copy_(kept(precision.dense, weight))
        for name, table in names.items():
            UPDATES[optimizer](weights[table], _gradient(rows[name]), state[table], step)
            weights[table].copy_(kept(precision.table, weights[table]))
    return Weights(first, first_dense), Weights(weights, dense)


def check(outcome: Outcome, expected: tuple[Weights, Weights], precision: Precision, share: float, what: str) -> None:
    """No weight is farther off than a `share` of how far any of its tensor went, and a rounding where its format rounds. A rank has
    the tower modules of its site alone.
    """
    first, last = (weights.all for weights in expected)
    assert outcome.tables.keys() == expected[1].tables.keys(), what
    assert {n for n in last if "tower_modules" not in n} <= (outcome.tables | outcome.dense).keys() <= last.keys(), what
    for name, weight in (outcome.tables | outcome.dense).items():
        step = STEP_OF.get(precision.table if name in outcome.tables else precision.dense, 0.0)
        most = share * float((last[name] - first[name]).abs().max()) + 2 * step * float(last[name].abs().max())
        torch.testing.assert_close(weight, last[name], rtol=0, atol=most + 1e-9, msg=lambda m, name=name: f"{what}, {name}: {m}")


def _cast(pooled: KeyedTensor, dtype: torch.dtype) -> KeyedTensor:
    return KeyedTensor(pooled.keys(), pooled.length_per_key(), pooled.values().to(dtype))


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad
