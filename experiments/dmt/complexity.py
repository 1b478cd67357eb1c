"""Tables 3, 4 and 5: FLOPs a sample and parameters of the models with towers, counted on the modules that run, on the meta device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf

from recsys_lab.experiment import ModelChoice
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.study import Line, Study
from recsys_lab.tables import Table

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "conf" / "model"
DENSE_FEATURES = 13
QUESTIONS = {
    "table3": "SPTT alone leaves the model as it is: a tower a feature, passed through",
    "table4": "what tower modules save",
    "table5": "DLRM with 8 towers, compressed further",
}
LEGEND = "Of a sample, and G parameters: published, ours and how far off. CR: how many times less the towers send. AUC: published only."
NOTES = (
    "AUC is the paper's alone: nothing here trains.",
    "FLOPs are of matrix products, forward and backward. The paper's profiler counts DCN's element-wise products too, 0.05 %: README.md.",
)


@dataclass(frozen=True)
class Counted:
    """Of one row of a table. `compression`: of what the towers send, N F over the sum of their outputs; None without towers."""

    mflops: float
    parameters_g: float
    compression: float | None


@cache
def published() -> dict[str, Any]:
    return yaml.safe_load((HERE / "published.yaml").read_text(encoding="utf-8"))


def strided(features: list[str], towers: int) -> tuple[tuple[str, ...], ...]:
    """The paper's naive towers (section 5.2.3): feature i in tower i modulo their number. The cost depends on their sizes alone."""
    return tuple(tuple(features[i::towers]) for i in range(towers))


def model_of(row: dict[str, Any]) -> ClickModel:
    """The model of a row of published.yaml, on the meta device."""
    import torch  # only where a model is built: the commands' help does not wait for it

    config = OmegaConf.create({"model": OmegaConf.load(MODELS / f"{row['model']}.yaml")})
    config.model.tower.update(row.get("tower", {}))
    OmegaConf.resolve(config)
    dim, features = config.model.embedding_dim, [f"cat_{i}" for i in range(len(config.model.rows))]
    tables = tuple(Table(name, rows, dim, (name,)) for name, rows in zip(features, config.model.rows))
    towers = strided(features, row["towers"]) if row.get("towers") else ()
    return ModelChoice.of(config.model).build(tables, DENSE_FEATURES, torch.device("meta"), towers)


def count(row: dict[str, Any]) -> Counted:
    from recsys_lab.models.workload import describe

    model = model_of(row)
    cost = describe(model, DENSE_FEATURES)
    flops = cost.forward_flops_per_sample + cost.backward_flops_per_sample
    looked_up = cost.embedding_parameters // cost.embedding_rows * len(model.features)
    sent = sum(getattr(model, "tower_widths", ()))
    return Counted(flops / 1e6, (cost.dense_parameters + cost.embedding_parameters) / 1e9, looked_up / sent if sent else None)


def run(name: str) -> Study:
    """The study of table `name`: table3, table4 or table5."""
    lines: list[Line] = []
    shown: list[tuple[str, ...]] = []
    rows: list[dict[str, Any]] = []
    for row in published()[name]:
        ours = count(row)
        flops = Line(f"{row['what']} FLOPs a sample", ours.mflops, row["mflops"], "MFLOP", "counted")
        parameters = Line(f"{row['what']} parameters", ours.parameters_g, row["parameters_g"], "G", "counted")
        lines += [flops, parameters]
        rows.append({"what": row["what"], "auc_published": row["auc"], "auc_std_published": row["std"], "auc_ours": None, **vars(ours)})
        sent = "–" if ours.compression is None else f"{ours.compression:.4g}"
        off = f"{flops.error:+.2%}", f"{parameters.error:+.2%}"
        figures = f"{row['mflops']:.2f}", f"{ours.mflops:.2f}", off[0], f"{row['parameters_g']:.2f}", f"{ours.parameters_g:.3f}", off[1]
        shown.append((row["what"], f"{row['auc']:.4f}", *figures, sent))
    columns = ("", "AUC", "MFLOP", "ours", "off", "G", "ours", "off", "CR")
    table = Shown(f"{name}: {QUESTIONS[name]}", columns, tuple(shown), LEGEND, columns[1:])
    return Study(name, QUESTIONS[name], tuple(lines), (), NOTES, {"rows": rows}, shown=table)
