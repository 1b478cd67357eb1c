"""Figure 7: an iteration on one machine, before and after. Runs experiments/benchmarks/dlrm_small.py and dlrm_mlperf.py.

Before is plain PyTorch of today in FP32, which is not the paper's 1.4: that spent 99 % of its time in one kernel, long since mended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from experiments.cpu_dlrm.tables import HERE, published
from recsys_lab.base.progress import Progress
from recsys_lab.base.ranges import Rounds
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, GREEN, GREY, INK, picture, written
from recsys_lab.studies.study import Line, Study

BENCHMARKS = HERE.parent / "benchmarks"
#: Model -> its benchmark.
SCRIPTS = {"small": "dlrm_small.py", "MLPerf": "dlrm_mlperf.py"}
CONTENDERS = {"torch": "PyTorch, FP32", "fp32": "ours, FP32", "split_sgd_bf16": "ours, Split-SGD-BF16"}
QUESTION = "an iteration on one machine, before and after, ms"
NOTES = (
    "Published: one Cascade Lake socket, 28 cores, PyTorch 1.4 before, FP32 after; times of different machines cannot be compared.",
    "The MLPerf model's tables are capped at 500,000 rows here. The least: what the machine would need for its FLOPs and bytes.",
)


def run(name: str, *, rounds: Rounds = 3) -> Study:
    lines: list[Line] = []
    rows: list[tuple[str, ...]] = []
    found = {}
    with Progress(len(SCRIPTS), "before and after in turns", "models") as bar:
        for model, script in SCRIPTS.items():
            found[model] = benchmark(script, rounds)
            bar.update()
    theirs = published()["figure7"]
    printed = {("small", "torch"): theirs["small_before_ms"], ("small", "fp32"): theirs["small_after_ms"]}
    times = {"small": theirs["small_times"], "MLPerf": theirs["mlperf_times"]}
    for model, made in found.items():
        for contender, what in CONTENDERS.items():
            ms, ratio = made["ms"][contender], made.get(f"{contender}_vs_torch")
            lines.append(Line(f"{model}, {what}", ms, printed.get((model, contender)), "ms", "measured"))
            if ratio is not None:
                compared = times[model] if contender == "fp32" else None
                lines.append(Line(f"{model}, {what}: times as fast as PyTorch", ratio, compared, "", "measured"))
            least = made["limit_ms"].get(contender)
            cells = (f"{ms:.1f}", "–" if ratio is None else f"{ratio:.2f}", "–" if least is None else f"{least:.1f}")
            rows.append((model, what, *cells, _printed(printed.get((model, contender)), times[model] if contender == "fp32" else None)))
    columns = ("", "", "ms", "times as fast", "least ms", "published")
    shown = Shown(f"{name}: {QUESTION}", columns, tuple(rows), "All but the last column measured here.", columns[2:])
    return Study(name, QUESTION, tuple(lines), (), NOTES, {"benchmarks": found}, partial(_draw, name, found), shown)


def _draw(name: str, found: dict[str, Any], folder: Path) -> list[Path]:
    with picture(folder / f"{name}.svg", len(found)) as (figure, axes):
        for axis, (model, made) in zip(axes, found.items()):
            bars = axis.bar(list(CONTENDERS.values()), [made["ms"][contender] for contender in CONTENDERS], 0.6, color=(GREY, BLUE, GREEN))
            axis.bar_label(bars, fmt="%.0f")
            for place, contender in enumerate(CONTENDERS):
                if (least := made["limit_ms"].get(contender)) is not None:
                    axis.plot([place - 0.3, place + 0.3], [least, least], color=INK, label="what the machine needs at least")
            axis.set(title=model)
            axis.grid(visible=False, axis="x")
        axes[0].set_ylabel("ms an iteration, measured")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[:1], labels[:1], loc="outside lower center")
    return written(folder, name)


def _printed(ms: float | None, ratio: float | None) -> str:
    return ", ".join(text for text in (f"{ms:,} ms" if ms else "", f"{ratio} x" if ratio else "") if text) or "–"


def benchmark(script: str, rounds: int) -> dict[str, Any]:
    """What the benchmark prints."""
    command = [sys.executable, str(BENCHMARKS / script), "--rounds", str(rounds), "--only", *CONTENDERS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
