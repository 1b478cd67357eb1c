"""What one iteration does besides the tables: batch, dense arch, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from recsys_lab.tables.access import TableAccess
from recsys_lab.tables.lengths import TOKENS, Lengths, Work
from recsys_lab.tables.spec import ELEMENT_BYTES, READ_BYTES, STORED_BYTES

Size = TypeVar("Size", int, np.ndarray)

#: Optimizer state, in FP32 elements: per weight, and per row of a table (or of a column shard of it).
STATE_PER_WEIGHT = {"sgd": 0, "adagrad": 1, "row_wise_adagrad": 0, "adam": 2, "adamw": 2, "lamb": 2}
STATE_PER_ROW = {"sgd": 0, "adagrad": 0, "row_wise_adagrad": 1, "adam": 0, "lamb": 0}


@dataclass(frozen=True)
class DenseLayer:
    """A matrix product of the dense arch: `rows` a sample times [n_in, n_out]. `ahead`: it needs no embedding, as the bottom MLP."""

    rows: float
    n_in: int
    n_out: int
    ahead: bool = False


@dataclass(frozen=True)
class TowerWork:
    """A tower module, and its work for one sample. `columns`: O, the numbers that it hands on."""

    parameters: int
    columns: int
    forward_flops_per_sample: float
    backward_flops_per_sample: float
    activation_bytes_per_sample: float


@dataclass(frozen=True)
class SequenceWork:
    """What a model of sequences does for a sample beside the products of its layers. Each pair is forward and backward.

    `attention_flops`: products between rows of one sequence, of sequences that are equally long.
    `moved_bytes`: what all else reads and writes: norms, gates, dropout, joins, gathers, sums of positions.
    """

    attention_flops: tuple[float, float]
    moved_bytes: tuple[float, float]

    def longer(self, times: float) -> SequenceWork:
        """Of histories so many times as long."""
        forward, backward = self.attention_flops
        return SequenceWork((forward * times**2, backward * times**2), (self.moved_bytes[0] * times, self.moved_bytes[1] * times))


@dataclass(frozen=True)
class ModelCost:
    """Parameters of a model, and its work for one sample after the tables.

    `layers`: its linear layers as they run, without those of tower modules. `towers`: its tower modules, whose work is part of it.
    `sequence`: of a model that reads sequences.
    """

    dense_parameters: int
    embedding_parameters: int
    embedding_rows: int
    forward_flops_per_sample: float
    backward_flops_per_sample: float
    activation_bytes_per_sample: float
    layers: tuple[DenseLayer, ...]
    towers: tuple[TowerWork, ...] = ()
    sequence: SequenceWork | None = None


@dataclass(frozen=True)
class Workload:
    """One training iteration of one rank. FLOPs are multiply-adds times two.

    Figures of the dense arch do not contain tower modules, where the model has some.

    Attributes:
        batch_size: B, samples of the rank.
        dense_parameters: of the dense arch.
        forward_flops_per_sample, backward_flops_per_sample: of the dense arch.
        activation_bytes_per_sample: of the dense arch, as if all were FP32.
        sparse_optimizer: sgd, adagrad, row_wise_adagrad, adam or lamb.
        dense_optimizer: of the dense arch.
        lengths: L, look-ups a sample by table; needed of sequence tables only.
        towers: the model's tower modules, in the order of its towers; none where rows pass through.
        layers: the dense arch's matrix products with weights; none where they are not known.
        dense_format: how the dense arch's weights are stored.
        replica_format: in which gradients of rows that several ranks hold alike are kept and sent.
        rows_format: in which looked-up rows travel forward.
        dense_features: of a sample, beside its ids.
        access: by table, how often each row is looked up; it says what share of the look-ups each shard of a sequence table serves. Where
            a table has none, its rows count as if all were alike.
        history: how long the histories of samples are; None: there are none, or only their mean is known.
        work: FLOPs of a sample by the length of its history, or what is in proportion to them.
        dealt_by: what is even over ranks, as all ranks' samples are dealt out so; None: samples come as they are.
        dedup: equal ids of a rank's batch travel and are looked up once: of sequences, where they travel.
        compute_format: of the dense arch's forward and backward pass.
        sequence: what a model of sequences does beside its layers; part of the FLOPs above.
    """

    batch_size: int
    dense_parameters: int
    forward_flops_per_sample: float
    backward_flops_per_sample: float
    activation_bytes_per_sample: float
    sparse_optimizer: str
    dense_optimizer: str
    lengths: Mapping[str, float] = field(default_factory=dict)
    towers: tuple[TowerWork, ...] = ()
    layers: tuple[DenseLayer, ...] = ()
    dense_format: str = "fp32"
    replica_format: str = "fp32"
    rows_format: str = "fp32"
    dense_features: int = 0
    access: Mapping[str, TableAccess] = field(default_factory=dict)
    dedup: bool = False
    history: Lengths | None = None
    work: Work = TOKENS
    dealt_by: Work | None = None
    compute_format: str = "fp32"
    sequence: SequenceWork | None = None

    def table_state_bytes(self, rows: Size, cols: Size) -> Size:
        """FP32 optimizer state of a shard of `rows` x `cols`, or of each of many."""
        return 4 * (rows * cols * STATE_PER_WEIGHT[self.sparse_optimizer] + rows * STATE_PER_ROW[self.sparse_optimizer])

    @property
    def kept_bytes(self) -> float:
        """Of a batch's activations, which the dense arch keeps for its backward pass in the format that it computes in."""
        return self.batch_size * self.activation_bytes_per_sample * ELEMENT_BYTES[self.compute_format] / ELEMENT_BYTES["fp32"]

    @property
    def dense_bytes(self) -> int:
        """Bytes of the dense arch on every rank. They are weights as stored, gradients as the model has them and FP32 optimizer state."""
        return self.dense_bytes_of(self.dense_parameters)

    def dense_bytes_of(self, parameters: int) -> int:
        """The same of so many parameters."""
        weights_and_gradients = STORED_BYTES[self.dense_format] + READ_BYTES[self.dense_format]
        return parameters * (weights_and_gradients + 4 * STATE_PER_WEIGHT[self.dense_optimizer])
