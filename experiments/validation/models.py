"""The models of the published points: tables, how they are looked up, and the dense arch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.choices import composed
from recsys_lab.models.choice import ModelChoice
from recsys_lab.plan import Workload
from recsys_lab.plan.workload import DenseLayer
from recsys_lab.tables import AccessStatistics, Table, power_law_access

#: Of conf/data/random.yaml, which a user's command has.
EXPONENT = 1.1
#: Categorical and dense features of Criteo's log, of models that leave them to the data.
FEATURES = (26, 13)


@dataclass(frozen=True)
class Model:
    """Tables with their access statistics, and the dense arch of one sample."""

    tables: tuple[Table, ...]
    access: AccessStatistics
    parameters: int
    forward_flops: float
    backward_flops: float
    activation_bytes: float
    layers: tuple[DenseLayer, ...]
    dense_features: int = 0

    def workload(self, batch_size: int, optimizer: str = "adagrad") -> Workload:
        """Of `batch_size` samples a rank, with one optimizer throughout."""
        return Workload(
            batch_size,
            self.parameters,
            self.forward_flops,
            self.backward_flops,
            self.activation_bytes,
            optimizer,
            optimizer,
            {t.name: self.access[t.name].mean_length for t in self.tables},
            layers=self.layers,
            dense_features=self.dense_features,
        )


@cache
def published() -> DictConfig:
    found = OmegaConf.load(Path(__file__).with_name("published.yaml"))
    assert isinstance(found, DictConfig)
    return found


@cache
def model(name: str, most_rows: int | None = None) -> Model:
    """A file of conf/model, or one of the synthetic models. `most_rows`: of each table; a file that fixes no tables has `FEATURES` such."""
    return _synthetic(published().synthetic[name]) if name in published().synthetic else _of_conf(name, most_rows)


def _of_conf(name: str, most_rows: int | None) -> Model:
    import torch  # only where a model is built: the command's help does not wait for it

    from recsys_lab.models.workload import describe

    config: Any = OmegaConf.create({"model": composed("model", name)})
    OmegaConf.resolve(config)
    config = config.model
    rows = [min(one, most_rows or one) for one in config.rows] if config.rows else [most_rows] * FEATURES[0]
    dense = config.dense_features or FEATURES[1]
    choice = ModelChoice.of(config)
    tables = tuple(Table(f"cat_{i}", one, sum(choice.kind.widths(config.embedding_dim)), (f"cat_{i}",)) for i, one in enumerate(rows))
    access = {t.name: power_law_access(t.name, t.rows, float(n), EXPONENT) for t, n in zip(tables, config.lengths or [1] * len(rows))}
    cost = describe(choice.build(tables, dense, torch.device("meta")), dense)
    return Model(
        tables,
        AccessStatistics(access),
        cost.dense_parameters,
        cost.forward_flops_per_sample,
        cost.backward_flops_per_sample,
        cost.activation_bytes_per_sample,
        tuple(DenseLayer(**asdict(layer)) for layer in cost.layers),
        dense,
    )


def _synthetic(given: DictConfig) -> Model:
    tables, access, columns = [], {}, 0
    for group, (count, lengths, rows, dim) in enumerate(given.groups):
        for number in range(count):
            name = f"t{group}_{number}"
            tables.append(Table(name, rows, dim, tuple(f"{name}_{i}" for i in range(len(lengths)))))
            access[name] = power_law_access(name, rows, float(sum(lengths)), given.get("exponent", published().synthetic.exponent))
            columns += len(lengths) * dim
    bottom = [given.dense, *given.get("bottom", ())]
    widths = [-(-columns // given.stride) + bottom[-1], *given.mlp, *([1] if given.get("logit", True) else [])]
    layers = tuple(DenseLayer(1.0, a, b, ahead=True) for a, b in pairwise(bottom)) + tuple(
        DenseLayer(1.0, a, b) for a, b in pairwise(widths)
    )
    parameters = sum((layer.n_in + 1) * layer.n_out for layer in layers)
    flops = 2.0 * sum(layer.n_in * layer.n_out for layer in layers)
    made = sum(bottom[1:]) + sum(widths) + (given.get("outputs", 1) - 1) * sum(given.mlp)
    kept = 4.0 * (columns * (2 if given.stride > 1 else 1) + made)
    return Model(tuple(tables), AccessStatistics(access), parameters, flops, 2 * flops, kept, layers, given.dense)
