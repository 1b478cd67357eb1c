"""Quality over paired seeds: lines of run.py, kept in folders, and how far each way to train ends from FP32.

Seeds are paired: the same first weights and the same order of samples in every variant.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cpu_dlrm.tables import HERE
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.result import RESULT_FILE, read_result
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.study import Line, Study
from recsys_lab.sweeps.statistics import Estimate, paired_difference

ROOT = HERE.parents[1]
#: How far from FP32's AUC is as good as FP32.
BOUND = 0.0005
LEVEL = 0.05
BASE = "fp32"
#: Each with what trains well on it: Adam, on the tables too.
DATA = {"synthetic": ("data=synthetic", "data.rows_test=0"), "frappe": ("experiment=frappe",)}
FIXED = ("mode=train", "model=dlrm", "logger=none", "trainer.checkpoint_every_steps=0", "trainer.evaluate_train_rows=0")
FIXED += ("trainer.measure_steps=1", "baselines=false")
NOTE = "From FP32: the median of the means of any two paired differences, and its exact interval (Hodges and Lehmann)."


@dataclass(frozen=True)
class Run:
    """A line of run.py, and the folder that it writes."""

    data: str
    variant: str
    seed: int
    folder: Path
    overrides: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        there = (self.folder / RESULT_FILE).is_file() and set(self._written()) == set(self.overrides)
        return there and read_result(self.folder)["status"] == "completed"

    def _written(self) -> list[str]:
        file = self.folder / "overrides.json"
        return json.loads(file.read_text()) if file.exists() else []

    def do(self) -> None:
        """Runs it, unless it has run. RuntimeError with its last words where it fails."""
        if self.is_done:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        command = [sys.executable, str(ROOT / "run.py"), *self.overrides, f"hydra.run.dir={self.folder}"]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=ROOT, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(self.overrides)} ended with {done.returncode}: {done.stderr[-2000:]}")
        (self.folder / "overrides.json").write_text(json.dumps(list(self.overrides)))
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        print(f"{self.data} {self.variant} seed {self.seed}: validation AUC {self.metric('auc'):.4f}", file=sys.stderr, flush=True)

    def metric(self, name: str) -> float:
        """auc or ne, of the validation split."""
        return read_result(self.folder)["quality"]["validation"][name]

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(step, validation AUC) of the evaluations on the way."""
        return self._logged("validation_auc")

    @property
    def losses(self) -> list[tuple[int, float]]:
        """(step, log loss of training) as it was logged, but for the first, which is of one batch before any step."""
        return self._logged("train_loss")[1:]

    def _logged(self, column: str) -> list[tuple[int, float]]:
        return [(row["step"], row[column]) for row in read_metrics(self.folder) if row.get(column) is not None]


def do_all(all_runs: Iterable[Run], at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(Run.do, all_runs))


def study_of(
    name: str,
    question: str,
    all_runs: list[Run],
    what: Mapping[str, str],
    bounded: tuple[str, ...],
    legend: str,
    draw: Callable[[Path], list[Path]] | None = None,
    short: tuple[str, ...] = (),
) -> Study:
    """`what`: what each variant is called, BASE among them. `bounded`: those whose AUC the study compares with FP32's. AUC is as good
    if the interval of the difference, at 1 - LEVEL or more, lies within the bound. `short`: those whose interval should lie below
    zero. Both need six seeds.
    """
    by_kind: dict[tuple[str, str], dict[int, Run]] = {}
    for one in all_runs:
        by_kind.setdefault((one.data, one.variant), {})[one.seed] = one
    lines: list[Line] = []
    rows: list[tuple[str, ...]] = []
    statements: list[tuple[str, bool]] = []
    compared: list[dict[str, Any]] = []
    for (data, variant), found in by_kind.items():
        median = statistics.median(one.metric("auc") for one in found.values())
        lines.append(Line(f"{data}, {what[variant]}: validation AUC", median, None, "", "measured"))
        cells = (f"{data}, {len(found)} seeds", what[variant], f"{median:.4f}")
        if variant == BASE:
            rows.append((*cells, "–", "–"))
            continue
        auc, differences = _from_base(found, by_kind[data, BASE], "auc")
        ne, _ = _from_base(found, by_kind[data, BASE], "ne")
        rows.append((*cells, _shown(auc), _shown(ne)))
        compared.append({"data": data, "variant": variant, "differences": differences, **vars(auc), "median_auc": median, "ne": vars(ne)})
        if variant in bounded:
            text = f"{data}: {what[variant]} is within {BOUND} of FP32 in AUC, with its interval, over {len(differences)} paired seeds"
            statements.append((text, auc.confidence >= 1 - LEVEL and auc.low >= -BOUND and auc.high <= BOUND))
        if variant in short:
            text = f"{data}: {what[variant]} is below FP32 in AUC, with its interval, over {len(differences)} paired seeds"
            statements.append((text, auc.confidence >= 1 - LEVEL and auc.high < 0))
    columns = ("", "", "AUC, median", "AUC from FP32's", "NE from FP32's")
    shown = Shown(f"{name}: {question}", columns, tuple(rows), legend, columns[2:])
    runs = [{"data": r.data, "variant": r.variant, "seed": r.seed, "auc": r.metric("auc"), "curve": r.curve} for r in all_runs]
    return Study(name, question, tuple(lines), tuple(statements), (NOTE,), {"compared": compared, "runs": runs}, draw, shown)


def _from_base(found: Mapping[int, Run], base: Mapping[int, Run], metric: str) -> tuple[Estimate, list[float]]:
    differences = [one.metric(metric) - base[seed].metric(metric) for seed, one in found.items() if seed in base]
    return paired_difference(differences, LEVEL), differences


def _shown(estimate: Estimate) -> str:
    interval = f" [{estimate.low:+.5f}, {estimate.high:+.5f}] at {estimate.confidence:.1%}" if estimate.confidence else ""
    return f"{estimate.value:+.5f}{interval}"
