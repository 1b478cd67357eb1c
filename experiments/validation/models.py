"""The models of the published points: tables, how they are looked up, and the dense arch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
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
def model(name: str) -> Model:
    """A file of conf/model that fixes its tables, or one of the synthetic models."""
    return _synthetic(published().synthetic[name]) if name in published().synthetic else _of_conf(name)


def _of_conf(name: str) -> Model:
    import torch  # only where a model is built: the command's help does not wait for it

    from recsys_lab.models.workload import describe

    config: Any = OmegaConf.create({"model": composed("model", name)})
    OmegaConf.resolve(config)
    config = config.model
    tables = tuple(Table(f"cat_{i}", rows, config.embedding_dim, (f"cat_{i}",)) for i, rows in enumerate(config.rows))
    access = {t.name: power_law_access(t.name, t.rows, float(n), EXPONENT) for t, n in zip(tables, config.lengths)}
    cost = describe(ModelChoice.of(config).build(tables, config.dense_features, torch.device("meta")), config.dense_features)
    return Model(
        tables,
        AccessStatistics(access),
        cost.dense_parameters,
        cost.forward_flops_per_sample,
        cost.backward_flops_per_sample,
        cost.activation_bytes_per_sample,
        tuple(DenseLayer(**asdict(layer)) for layer in cost.layers),
        config.dense_features,
    )


def _synthetic(given: DictConfig) -> Model:
    tables, access, columns = [], {}, 0
    for group, (count, lengths, rows, dim) in enumerate(given.groups):
        for number in range(count):
            name = f"t{group}_{number}"
            tables.append(Table(name, rows, dim, tuple(f"{name}_{i}" for i in range(len(lengths)))))
            access[name] = power_law_access(name, rows, float(sum(lengths)), given.get("exponent", published().synthetic.exponent))
            columns += len(lengths) * dim
    widths = [-(-columns // given.stride) + given.dense, *given.mlp, 1]
    layers = tuple(DenseLayer(1.0, n_in, n_out) for n_in, n_out in zip(widths, widths[1:]))
    parameters = sum((layer.n_in + 1) * layer.n_out for layer in layers)
    flops = 2.0 * sum(layer.n_in * layer.n_out for layer in layers)
    kept = 4.0 * (columns * (2 if given.stride > 1 else 1) + sum(widths))
    return Model(tuple(tables), AccessStatistics(access), parameters, flops, 2 * flops, kept, layers, given.dense)
