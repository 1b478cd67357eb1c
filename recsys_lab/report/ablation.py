"""The ablation table of a sweep: one row a configuration, its seeds folded to median and range (min to max).

Measured and simulated figures have their own columns. A configuration that failed says so, and why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from recsys_lab.errors import UserError
from recsys_lab.report.ablation_rows import Ablation, read_ablation
from recsys_lab.report.ablation_text import as_csv, as_html, as_markdown, print_ablation
from recsys_lab.report.files import write_text


def write_ablation(folder: Path | str, baseline: str | None = None) -> Ablation:
    """Write ablation.csv, .md and .html into the sweep's `folder`, each whole or not at all."""
    made = read_ablation(folder, baseline)
    write_text(made.folder / "ablation.csv", as_csv(made))
    write_text(made.folder / "ablation.md", as_markdown(made))
    write_text(made.folder / "ablation.html", as_html(made))
    return made


class WriteAblation(Callback):
    """Hydra's callback: after a sweep, its table, by the first rank alone."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        if os.environ.get("RANK", "0") != "0":
            return
        try:
            print_ablation(write_ablation(Path(config.hydra.sweep.dir), (config.get("ablation") or {}).get("baseline")))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
