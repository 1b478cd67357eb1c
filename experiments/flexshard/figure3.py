"""Figure 3: a whole table data-parallel against row-wise, as its length grows with its rows: L = alpha E."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.flexshard.models import published, setting
from recsys_lab.sharders.flexshard.costs import break_point, replication, row_sharding
from recsys_lab.studies.pictures import BLUE, GREY, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

ALPHAS = np.logspace(-6, 0, 121)


def ratios(alpha: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Memory and communication of DP over those of RW. E cancels out, so it is 1."""
    dim = published().setting.dim
    dp, rw = replication(1.0, dim, alpha, setting()), row_sharding(1.0, dim, alpha, setting())
    return dp.memory_bytes / rw.memory_bytes, dp.communication_ms / rw.communication_ms


def run(name: str) -> Study:
    s = setting()
    memory, time = (break_point(replication, row_sharding, metric, s) for metric in ("memory_bytes", "communication_ms"))
    usual = ratios(1e-4)
    lines = (
        Line("alpha at which memory is neutral", memory, origin="simulated"),
        Line("alpha at which communication is neutral", time, origin="simulated"),
        Line("memory of DP over RW at alpha = 1e-4", float(usual[0]), unit="times", origin="simulated"),
        Line("communication of DP over RW at alpha = 1e-4", float(usual[1]), unit="times", origin="simulated"),
    )
    above = [value for ratio in ratios(np.array([2 * max(memory, time), 1e-1])) for value in ratio]
    statements = (
        ("at alpha of order 1e-4, that of whole tables, DP takes much more memory than RW (section 3.2)", bool(usual[0] > 2)),
        ("for sufficiently large alpha DP saves both time and memory (section 3.2)", all(value < 1 for value in above)),
    )
    data = {"curves": {"alpha": ALPHAS.tolist(), "memory": ratios(ALPHAS)[0].tolist(), "communication": ratios(ALPHAS)[1].tolist()}}
    notes = (
        "The figure prints no numbers. From its caption: 32 GPUs, batch 4096, dimension 256, all-reduce 3 times as fast as all-to-all.",
        "Communication forward and backward, as section 3.2 says; with one pass alone its break-point would be at twice this alpha.",
    )
    return Study(name, "whole tables: where data-parallel costs less than row-wise", lines, statements, notes, data, draw)


def draw(folder: Path) -> list[Path]:
    memory, time = ratios(ALPHAS)
    with picture(folder / "figure3.svg") as (_, (axis,)):
        axis.loglog(ALPHAS, memory, color=BLUE, label="memory")
        axis.loglog(ALPHAS, time, color=ORANGE, label="communication")
        axis.axhline(1, color=GREY, linewidth=1)
        for metric, color in (("memory_bytes", BLUE), ("communication_ms", ORANGE)):
            at = break_point(replication, row_sharding, metric, setting())
            axis.plot([at], [1], "o", color=color)
            axis.annotate(f"{at:.2g}", (at, 1), textcoords="offset points", xytext=(6, 6), color=color)
        axis.set(xlabel="alpha = L / E; of a single row: p", ylabel="data-parallel over row-wise", ylim=(1e-3, 1e3))
        axis.set_title("Below 1, replicas cost less (simulated; 32 ranks, batch 4096, all-reduce 3 x all-to-all)")
        axis.legend()
    return written(folder, "figure3")
