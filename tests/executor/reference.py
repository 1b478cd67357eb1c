"""What sharded training must equal: the same model in one process, with textbook optimizers over whole tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchrec.modules.embedding_configs import PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.table_configs import READ_TYPE, StoredBagConfig, StoredRowConfig
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.tables import Table

SEED, LR = 11, 0.05
LONGEST = 3  # ids of a sequence that the model reads
#: Large enough that rounding in a gradient (about 1e-9) changes g / (|g| + eps) by less than 1e-6 / LR, whatever g is.
EPS = 1e-4


def bags(tables: tuple[Table, ...], device: torch.device) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(
        device=device,
        tables=[
            StoredBagConfig(
                name=t.name,
                num_embeddings=t.rows,
                embedding_dim=t.dim,
                feature_names=list(t.features),
                pooling=PoolingType.MEAN if t.pooling == "mean" else PoolingType.SUM,
                data_type=READ_TYPE[t.dtype],
                stored=t.dtype,
            )
            for t in tables
        ],
    )


def rows(tables: tuple[Table, ...], device: torch.device) -> EmbeddingCollection:
    configs = [
        StoredRowConfig(
            name=t.name,
            num_embeddings=t.rows,
            embedding_dim=t.dim,
            feature_names=list(t.features),
            data_type=READ_TYPE[t.dtype],
            stored=t.dtype,
        )
        for t in tables
    ]
    return EmbeddingCollection(device=device, tables=configs)


class Concat(nn.Module):
    """Pooled embeddings of any widths, or the first ids of sequences in their order, and K dense values, concatenated, through two
    layers -> logits [B].
    """

    def __init__(self, tables: tuple[Table, ...], dense_width: int, device: torch.device):
        super().__init__()
        self.features = [f for t in tables for f in t.features]
        self.longest = LONGEST if tables[0].pooling == "none" else 1
        self.embeddings = rows(tables, device) if tables[0].pooling == "none" else bags(tables, device)
        width = sum(t.dim * len(t.features) for t in tables) * self.longest + dense_width
        self.hidden = nn.Linear(width, 8, device=device)
        self.out = nn.Linear(8, 1, device=device)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        pooled = self.embeddings(sparse)
        if self.longest > 1:
            parts = [pooled[f].to_padded_dense(self.longest).flatten(1) for f in self.features]
        else:
            parts = [pooled[f] for f in self.features]
        return self.out(torch.tanh(self.hidden(torch.cat([dense, *parts], dim=1)))).squeeze(1)


def weights_of(model: Any) -> dict[str, Tensor]:
    """Of the unsharded tables, by name."""
    tables = model.embeddings.embeddings if isinstance(model.embeddings, EmbeddingCollection) else model.embeddings.embedding_bags
    return {name: table.weight for name, table in tables.items()}


@dataclass
class Sample:
    """A global batch of B samples: ids[feature][sample] is a list."""

    dense: Tensor
    labels: Tensor
    ids: dict[str, list[list[int]]]

    @property
    def values(self) -> Tensor:
        """What a model reads beside its ids, as a batch calls it."""
        return self.dense

    def part(self, rank: int, world: int) -> Sample:
        rows = len(self.labels) // world
        cut = slice(rank * rows, (rank + 1) * rows)
        return Sample(self.dense[cut], self.labels[cut], {f: bags[cut] for f, bags in self.ids.items()})

    @property
    def sparse(self) -> KeyedJaggedTensor:
        bags = [bag for feature in self.ids.values() for bag in feature]
        return KeyedJaggedTensor(
            list(self.ids),
            torch.tensor([i for bag in bags for i in bag], dtype=torch.int64),
            lengths=torch.tensor([len(bag) for bag in bags], dtype=torch.int32),
        )


def samples(tables: tuple[Table, ...], steps: int, rows: int, dense_width: int, seed: int = 5) -> list[Sample]:
    """Batches of 0 to 3 ids a bag, often repeated; in every second batch the first feature is empty throughout."""
    random = torch.Generator().manual_seed(seed)

    def bag(table: Table, empty: bool) -> list[int]:
        length = 0 if empty else int(torch.randint(0, 4, (), generator=random))
        return torch.randint(0, table.rows, (length,), generator=random).tolist()

    batches = []
    for step in range(steps):
        first = tables[0].features[0]
        ids = {f: [bag(t, f == first and step % 2 == 1) for _ in range(rows)] for t in tables for f in t.features}
        batches.append(Sample(torch.rand(rows, dense_width, generator=random), torch.randint(0, 2, (rows,), generator=random).float(), ids))
    return batches


@dataclass
class Outcome:
    """Of `steps` steps: logits and dense gradients of the first, tables after the first and the last, their optimizer state."""

    logits: Tensor
    dense_grads: dict[str, Tensor]
    tables_after_one: dict[str, Tensor]
    tables: dict[str, Tensor]
    dense: dict[str, Tensor]
    state: dict[str, dict[str, Tensor]]


def train_unsharded(
    tables: tuple[Table, ...], batches: list[Sample], optimizer: str, dense_width: int, make: Callable[..., nn.Module] = Concat
) -> Outcome:
    """One process, whole tables, dense gradients. `make`: the model from tables, dense width and device."""
    model: Any = make(tables, dense_width, torch.device("cpu"))
    initialise_dense(model, SEED, torch.device("cpu"))
    weights = weights_of(model)
    with torch.no_grad():
        for t in tables:
            weights[t.name].copy_(initial_weight(t, 0, t.rows, 0, t.dim, SEED))
    dense = {name: p for name, p in model.named_parameters() if not name.startswith("embeddings.")}
    dense_optimizer = torch.optim.SGD(dense.values(), lr=LR)
    state: dict[str, dict[str, Tensor]] = {name: {} for name in weights}
    outcome = Outcome(torch.empty(0), {}, {}, {}, {}, state)
    for step, batch in enumerate(batches, start=1):
        model.zero_grad()
        logits = model(batch.dense, batch.sparse)
        binary_cross_entropy_with_logits(logits, batch.labels).backward()
        dense_optimizer.step()
        with torch.no_grad():
            for name, weight in weights.items():
                assert weight.grad is not None
                UPDATES[optimizer](weight, weight.grad, state[name], step)
        if step == 1:
            outcome.logits = logits.detach()
            outcome.dense_grads = {name: p.grad.clone() for name, p in dense.items()}
            outcome.tables_after_one = {name: w.detach().clone() for name, w in weights.items()}
    outcome.tables = {name: w.detach() for name, w in weights.items()}
    outcome.dense = {name: p.detach() for name, p in dense.items()}
    return outcome


def _sgd(weight: Tensor, grad: Tensor, state: dict[str, Tensor], step: int) -> None:
    weight -= LR * grad


def _adagrad(weight: Tensor, grad: Tensor, state: dict[str, Tensor], step: int) -> None:
    total = state.setdefault("sum", torch.zeros_like(weight))
    total += grad**2
    weight -= LR * grad / (total.sqrt() + EPS)


def _row_wise_adagrad(weight: Tensor, grad: Tensor, state: dict[str, Tensor], step: int) -> None:
    total = state.setdefault("row_sum", torch.zeros(len(weight)))
    total += (grad**2).mean(dim=1)
    weight -= LR * grad / (total.sqrt() + EPS)[:, None]


def _moved_by_moments(grad: Tensor, state: dict[str, Tensor]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(row, mean, square) of each row whose gradient is not zero. Moves both."""
    means, squares = (state.setdefault(name, torch.zeros_like(grad)) for name in ("exp_avg", "exp_avg_sq"))
    for row, g in enumerate(grad):
        if (g == 0).all():
            continue
        means[row] = 0.9 * means[row] + 0.1 * g
        squares[row] = 0.999 * squares[row] + 0.001 * g**2
        yield row, means[row], squares[row]


def _adam(weight: Tensor, grad: Tensor, state: dict[str, Tensor], step: int) -> None:
    for row, mean, square in _moved_by_moments(grad, state):
        weight[row] -= LR * math.sqrt(1 - 0.999**step) / (1 - 0.9**step) * mean / (square.sqrt() + EPS)


def _lamb(weight: Tensor, grad: Tensor, state: dict[str, Tensor], step: int) -> None:
    for row, mean, square in _moved_by_moments(grad, state):
        direction = mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + EPS)
        weight[row] -= LR * weight[row].norm() / direction.norm() * direction


UPDATES = {"lamb": _lamb, "sgd": _sgd, "adagrad": _adagrad, "row_wise_adagrad": _row_wise_adagrad, "adam": _adam}
