"""Figure 8: what an iteration on one machine spends its time on, before and after: embeddings, MLPs, and the rest.

Counted by torch's profiler on the contenders of experiments/benchmarks/dlrm_contenders.py, by the operations' own time on the thread that
trains. Embeddings are look-ups and the update of their rows; MLPs the matrix products with their ReLUs and biases.
"""

from __future__ import annotations

import gc
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch.profiler import ProfilerActivity, profile

from experiments.benchmarks import dlrm_contenders, one_machine
from experiments.cpu_dlrm.figure7 import CONTENDERS
from experiments.cpu_dlrm.tables import MODELS, published
from recsys_lab.base.progress import Progress
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, GREY, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

MOST_ROWS = 500_000
WARM_UP, COUNTED = 3, 6
QUESTION = "what an iteration on one machine spends its time on, %"
#: Parts of operations' names. Our kernels run inside autograd functions and the optimizer's step, as their own time.
EMBEDDINGS = ("embedding", "_lookup", "sparse", "coalesce", "denseandtables")
MLPS = ("mm", "linear", "relu", "threshold", "gemm")
PARTS = ("embeddings", "MLPs", "rest")
NOTES = (
    "Rest: interaction, loss, data, the dense optimizer.",
    "Published, in words: before, one embedding kernel takes 99 %; after, embeddings take about 30 % (small) and less than 20 % (MLPerf).",
)


def run(name: str) -> Study:
    one_machine.alone()
    rows: list[tuple[str, ...]] = []
    lines: list[Line] = []
    found: dict[tuple[str, str], dict[str, float]] = {}
    theirs = {
        "small": published()["figure8"]["small_embeddings_after"],
        "MLPerf": published()["figure8"]["mlperf_embeddings_after_at_most"],
    }
    with Progress(len(theirs) * len(CONTENDERS), "profiles", "profiles") as bar:
        for (model, given), (contender, what) in product(problems().items(), CONTENDERS.items()):
            shares = found[model, what] = shares_of(given, contender)
            bar.update()
            rows.append((model, what, *(f"{shares[part]:.0f} %" for part in PARTS)))
            for part in PARTS:
                compared = theirs[model] if (model, part, contender) == ("small", "embeddings", "fp32") else None
                lines.append(Line(f"{model}, {what}: {part}", shares[part], compared, "%", "measured"))
    columns = ("", "", *PARTS)
    shown = Shown(f"{name}: {QUESTION}", columns, tuple(rows), "Measured here.", columns[2:])
    ours = found["MLPerf", CONTENDERS["fp32"]]["embeddings"]
    statements = (("MLPerf: after, embeddings take less than 20 % of an iteration", ours < theirs["MLPerf"]),)
    return Study(name, QUESTION, tuple(lines), statements, NOTES, draw=partial(_draw, name, found, theirs), shown=shown)


def _draw(name: str, found: dict[tuple[str, str], dict[str, float]], theirs: dict[str, float], folder: Path) -> list[Path]:
    """A bar a contender, and what the text says of the embeddings' share after."""
    with picture(folder / f"{name}.svg", len(theirs), width=11.0) as (figure, axes):
        for axis, model in zip(axes, theirs):
            bars = {what: shares for (of, what), shares in found.items() if of == model}
            below = [0.0] * len(bars)
            for part, colour in zip(PARTS, (ORANGE, BLUE, GREY)):
                heights = [shares[part] for shares in bars.values()]
                axis.bar_label(axis.bar(list(bars), heights, 0.6, bottom=below, color=colour, label=part), fmt="%.0f", label_type="center")
                below = [at + height for at, height in zip(below, heights)]
            axis.axhline(theirs[model], color=INK, linestyle="--", linewidth=1, label="published: embeddings, after")
            axis.set(title=model, ylim=(0, 100))
            axis.grid(visible=False, axis="x")
        axes[0].set_ylabel("of an iteration's time, %, measured")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return written(folder, name)


def problems() -> dict[str, Any]:
    """The small model, and the MLPerf one with its tables capped as in dlrm_mlperf.py."""
    rows = [min(rows, MOST_ROWS) for rows in OmegaConf.load(MODELS / "dlrm_mlperf.yaml").rows]
    return {
        "small": dlrm_contenders.problem("model=dlrm_small", "data.exponent=0"),
        "MLPerf": dlrm_contenders.problem("model=dlrm_mlperf", f"model.rows={rows}"),
    }


def shares_of(given: Any, contender: str) -> dict[str, float]:
    """Per cent of the time of some iterations, by part."""
    step, source = dlrm_contenders.CONTENDERS[contender](given), one_machine.batches(given)
    for _ in range(WARM_UP):
        step(next(source))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        for _ in range(COUNTED):
            step(next(source))
    tables = {feature.rows for feature in given.data.features if feature.rows > dlrm_contenders.BATCH}
    ids = {round(feature.mean_length * dlrm_contenders.BATCH) for feature in given.data.features}
    times = dict.fromkeys(PARTS, 0.0)
    for event in found.key_averages(group_by_input_shape=True):
        times[part_of(event.key, event.input_shapes, tables, ids)] += event.self_cpu_time_total
    del step, source
    gc.collect()
    return {part: 100 * spent / sum(times.values()) for part, spent in times.items()}


def part_of(name: str, shapes: list[list[int]], tables: set[int], ids: set[int]) -> str:
    """`tables`: rows of the tables; what is done to a matrix with as many is done to a table. `ids`: of a feature in a batch; torch makes a
    gradient of each by `index_select`.
    """
    lower = name.lower()
    of_table = any(len(shape) == 2 and shape[0] in tables for shape in shapes)
    if of_table or any(part in lower for part in EMBEDDINGS) or ("index_select" in lower and shapes[-1:] in [[[n]] for n in ids]):
        return "embeddings"
    return "MLPs" if any(part in lower for part in MLPS) and "bmm" not in lower else "rest"
