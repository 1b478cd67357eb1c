"""What TorchRec 1.9's dry run plans for, as JSON: the tables of a model, and a request. Imports no torch.

TorchRec writes no such file itself (1.9.0: `planner/dry_run/cli.py` prints text). It has the values, which a user writes
(docs/torchrec.md): `ModelArch` of `planner/model_arch.py`, `ShardingPlanRequest` and `ParameterConstraints` of `planner/types.py`.
Of these we read what says how large an iteration is. Sharding types, kernels, caches and hardware are the user's question to us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recsys_lab.base.files import path_of, read_json
from recsys_lab.base.ranges import Count
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import UserError

SUFFIX = ".json"
VERSIONS = "1.9"
REMEDY = "write it as docs/torchrec.md shows"
#: Weights that a training here can have. Which of them they have is for `precision` to say.
TRAINED = (None, "FP32", "FP16", "BF16")
POOLINGS = ("SUM", "MEAN")


@dataclass(frozen=True)
class _Table:
    """Of TorchRec's `TableArch`."""

    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: list[str]
    pooling: str | None = None
    data_type: str | None = None


@dataclass(frozen=True)
class _Model:
    """Of TorchRec's `ModelArch`."""

    tables: list[_Table]


@dataclass(frozen=True)
class _Constraints:
    """Of TorchRec's `ParameterConstraints`. Each list: one figure a feature."""

    pooling_factors: list[float] | None = None
    num_poolings: list[float] | None = None
    batch_sizes: list[int] | None = None


@dataclass(frozen=True)
class _Request:
    """Of TorchRec's `ShardingPlanRequest`. `batch_size`: samples a rank."""

    world_size: Count
    batch_size: Count
    constraints: Mapping[str, _Constraints] | None = None


@dataclass(frozen=True)
class _DryRun:
    model_arch: _Model
    request: _Request


@dataclass(frozen=True)
class _Version:
    torchrec: str


def read_cells(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Each feature with its table, as a table file has them: where it stands, and its cells by column.

    Raises:
        UserError: for a file that is broken or of another version, and for tables that `model=tables` has not.
    """
    data = _read(path)
    constraints = data["request"].get("constraints") or {}
    cells = []
    for table in data["model_arch"]["tables"]:
        where = f"{path}: table {table['name']}"
        _check(table, where)
        features = table["feature_names"]
        factors = _factors(constraints.get(table["name"]) or {}, len(features), data["request"]["batch_size"], where)
        size = {"rows": str(table["num_embeddings"]), "dim": str(table["embedding_dim"]), "pooling": table["pooling"].lower()}
        for feature, factor in zip(features, factors, strict=True):
            cells.append((where, {"name": feature, "mean_ids": repr(factor), "table": table["name"]} | size))
    return cells


def batch_of_request(text: str | None) -> tuple[int, int] | None:
    """Samples a rank and ranks of the request in the file `model.file`; None where that is no dry run of TorchRec."""
    if text is None or Path(text).suffix != SUFFIX:
        return None
    request = _read(path_of(text, "model.file"))["request"]
    return request["batch_size"], request["world_size"]


def _read(path: Path) -> dict:
    data = read_json(path, REMEDY)
    check_shape(data, _Version, path, REMEDY)
    if not re.match(rf"{re.escape(VERSIONS)}\.\d", data["torchrec"]):
        raise UserError("of another version of TorchRec", where=path, given=data["torchrec"], allowed=f"{VERSIONS}.x", remedy=REMEDY)
    check_shape(data, _DryRun, path, REMEDY)
    return data


def _check(table: Mapping, where: str) -> None:
    if table.get("pooling") not in POOLINGS:
        remedy = "leave its table out; sequences (EmbeddingCollection): model=hstu and its kin"
        raise UserError("no pooled table", where=where, given=table.get("pooling"), allowed=", ".join(POOLINGS), remedy=remedy)
    if table.get("data_type") not in TRAINED:
        allowed = ", ".join(filter(None, TRAINED))
        raise UserError("no weights that are trained here", where=where, given=table["data_type"], allowed=allowed, remedy=REMEDY)
    if not table["feature_names"]:
        raise UserError("a table without features", where=where, remedy="give feature_names: what reads it")


def _factors(constraints: Mapping, features: int, batch_size: int, where: str) -> list[float]:
    """Ids of a sample, by feature. TorchRec's default is one figure, 1.0, which holds for each."""
    for name, only in (("num_poolings", 1), ("batch_sizes", batch_size)):
        if any(value != only for value in constraints.get(name) or ()):
            given = f"{name} {constraints[name]}"
            raise UserError("a batch of its own for a feature", where=where, given=given, allowed=f"{only}", remedy="model.file: a CSV")
    factors = constraints.get("pooling_factors") or [1.0]
    factors = factors * features if len(factors) == 1 else factors
    if len(factors) != features:
        allowed = f"{features}, one a feature"
        raise UserError("another number of pooling factors than features", where=where, given=len(factors), allowed=allowed, remedy=REMEDY)
    return factors
