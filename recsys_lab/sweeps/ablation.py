"""The ablation table of a sweep, in every format, written by Hydra when the sweep ends.

One row a configuration, its seeds folded. Measured and simulated figures never share a table. What failed or is missing says so.
"""

from __future__ import annotations

import re
from pathlib import Path

from hydra.utils import get_method
from omegaconf import DictConfig

from recsys_lab.base.files import write_text
from recsys_lab.sweeps.cells import change_tables, comparison_tables, value_tables
from recsys_lab.sweeps.latex import as_latex
from recsys_lab.sweeps.page import as_html
from recsys_lab.sweeps.table import LEVEL, Ablation, Cell, read_ablation
from recsys_lab.sweeps.text import as_csv, as_markdown, statistics_csv
from recsys_lab.sweeps.text import print_ablation as print_ablation

#: Loggers whose runs take tables.
KEEP_TABLES = ("recsys_lab.record.wandb_run.start", "recsys_lab.record.mlflow_run.start")


def write_ablation(
    folder: Path | str,
    baseline: str | None = None,
    level: float = LEVEL,
    reload_s: int | None = None,
    ablation: Ablation | None = None,
    cell: Cell = "median",
) -> Ablation:
    """Write ablation.csv, .md, .tex, .html and ablation_statistics.csv into the sweep's `folder`, each whole or not at all."""
    ablation = ablation or read_ablation(folder, baseline, level, cell)
    write_text(ablation.folder / "ablation.csv", as_csv(ablation))
    write_text(ablation.folder / "ablation_statistics.csv", statistics_csv(ablation))
    write_text(ablation.folder / "ablation.md", as_markdown(ablation))
    write_text(ablation.folder / "ablation.tex", as_latex(ablation))
    write_text(ablation.folder / "ablation.html", as_html(ablation, reload_s))
    return ablation


def log_ablation(ablation: Ablation, logger: DictConfig | None) -> None:
    """The tables and the page as a run of the sweep's own, beside its jobs. It does nothing where the logger keeps no tables."""
    if logger is None or (target := logger.get("_target_")) not in KEEP_TABLES:
        return
    start = get_method(target)
    name = ablation.folder.resolve().name
    options = {str(key): value for key, value in logger.items() if key != "_target_"}
    every = (*value_tables(ablation), *change_tables(ablation), *comparison_tables(ablation))
    tables = {re.sub(r"\W+", "_", table.title.lower()).strip("_"): (table.columns, table.rows) for table in every}
    page = (ablation.folder / "ablation.html").read_text(encoding="utf-8")
    run = start(ablation.folder, {"sweep": name, "level": ablation.level}, f"ablation of {name}", name, **options)
    run.log_tables("ablation", tables, page)
    run.finish("completed")
