"""Tables I and II: the three models and what they move, counted on the modules that train, on the meta device (section VI-D, eq. 1, 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf

from recsys_lab.models.choice import ModelChoice
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.workload import describe
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.study import Line, Study
from recsys_lab.tables import Table

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "conf" / "model"
NAMES = {"dlrm_small": "Small", "dlrm_large": "Large", "dlrm_mlperf": "MLPerf"}
FP32_BYTES = 4
MIB = 1 << 20
#: 1,024 times 10^6 bytes.
MIXED_GB = 1024e6
IN_MIXED_GB = "memory of all tables, 1,024 MB"
QUESTIONS = {"table1": "the three models", "table2": "what they hold and move"}
NOTES = {
    "table1": ("The paper's small and large top MLPs end in a layer to one logit, which is among the layers that it counts.",),
    "table2": (
        "MB are MiB. Memory is printed in two units: 2 and 384 are in 1,024 MB of 10^6 bytes, 98 in GiB. It is judged once, in GiB.",
        "Small's all-to-all is 8 x 8,192 x 64 x 4 bytes = 16 MiB by the paper's own equation 2; why it prints 15.8 we do not know.",
        "MLPerf's all-reduce is that of the benchmark's over MLP, 1024-1024-512-256-1; table I's 512-512-256-1 comes to 3.1 MiB.",
        "Sockets: a power of two of those with 192 GB. The paper marks MLPerf's 1 with a star: others have 96 GB.",
    ),
}


@dataclass(frozen=True)
class Counted:
    """Of one model: bytes of all tables, of the dense gradients (eq. 1), of all ranks' pooled rows at the strong-scaling batch (eq. 2)."""

    memory_bytes: int
    all_reduce_bytes: int
    all_to_all_bytes: int
    tables: int


@cache
def published() -> dict[str, Any]:
    return yaml.safe_load((HERE / "published.yaml").read_text(encoding="utf-8"))


def config_of(name: str) -> Any:
    config = OmegaConf.create({"model": OmegaConf.load(MODELS / f"{name}.yaml")})
    OmegaConf.resolve(config)
    return config.model


def model_of(name: str) -> ClickModel:
    """The model of `conf/model/NAME.yaml` on the meta device."""
    model = config_of(name)
    tables = tuple(Table(f"cat_{i}", rows, model.embedding_dim, (f"cat_{i}",)) for i, rows in enumerate(model.rows))
    return ModelChoice.of(model).build(tables, model.dense_features, torch.device("meta"))


def count(name: str) -> Counted:
    model, row = model_of(name), published()["table1"][name]
    cost = describe(model, config_of(name).dense_features)
    pooled = len(model.features) * row["batch_strong"] * config_of(name).embedding_dim
    return Counted(cost.embedding_parameters * FP32_BYTES, cost.dense_parameters * FP32_BYTES, pooled * FP32_BYTES, len(model.features))


def run(name: str) -> Study:
    """The study of table `name`: table1 or table2."""
    lines = tuple(line for model in NAMES for line in (_models(model) if name == "table1" else _moved(model)))
    columns = ("", *NAMES.values())
    whats = [line.what.split(": ")[1] for line in lines[: len(lines) // len(NAMES)]]
    cells = {line.what: line for line in lines}
    rows = tuple((what, *(_cell(cells[f"{title}: {what}"]) for title in NAMES.values())) for what in whats)
    return Study(
        name, QUESTIONS[name], lines, (), NOTES[name], shown=Shown(f"{name}: {QUESTIONS[name]}", columns, rows, "published | ours")
    )


def _cell(line: Line) -> str:
    return " | ".join(f"{value:,.0f}" if value > 1000 else f"{value:.4g}" for value in (line.published, line.ours) if value is not None)


def _models(name: str) -> list[Line]:
    row, model = published()["table1"][name], config_of(name)
    found = {
        "look-ups a table": (row["look_ups"], model.lengths[0]),
        "tables": (row["tables"], len(model.rows)),
        "dimension": (row["dim"], model.embedding_dim),
        "rows of the largest table": (row["rows"], max(model.rows)),
        "inputs of the bottom MLP": (row["bottom_inputs"], model.dense_features),
        "layers of the bottom MLP": (row["bottom_layers"], len(model.bottom_layers)),
        "widest of the bottom MLP": (max(row["bottom_size"]), max(model.bottom_layers)),
        "layers of the top MLP": (row["top_layers"], len(model.over_layers)),
        "widest of the top MLP": (max(row["top_size"]), max(model.over_layers)),
    }
    return [Line(f"{NAMES[name]}: {what}", ours, theirs, origin="counted") for what, (theirs, ours) in found.items()]


def _moved(name: str) -> list[Line]:
    row, ours = published()["table2"][name], count(name)
    sockets = math.ceil(ours.memory_bytes / 1e9 / published()["socket_memory_gb"])
    found = {
        IN_MIXED_GB: (row["memory_gb"], ours.memory_bytes / MIXED_GB, ""),
        "memory of all tables, GiB": (row["memory_gb"], ours.memory_bytes / (1 << 30), ""),
        "sockets at least": (row["sockets"], _power_of_two(sockets), ""),
        "ranks at most": (row["ranks"], ours.tables, ""),
        "all-reduce": (row["all_reduce_mb"], ours.all_reduce_bytes / MIB, "MB"),
        "all-to-all, strong scaling": (row["all_to_all_mb"], ours.all_to_all_bytes / MIB, "MB"),
    }
    return [
        Line(f"{NAMES[name]}: {what}", figure, theirs, unit, "counted", repeated=what == IN_MIXED_GB)
        for what, (theirs, figure, unit) in found.items()
    ]


def _power_of_two(sockets: int) -> int:
    """The least that is not less."""
    return 1 << (sockets - 1).bit_length()
