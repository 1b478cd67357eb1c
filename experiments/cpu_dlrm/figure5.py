"""Figure 5: an MLP's training kernels as shares of the processor's peak. N = 1024, five layers of C = K = 1024, 2048 or 4096.

Ours are the products that our dense layers make (recsys_lab/models/linear.py), beside torch's own, in FP32 and in BF16. Everything is
measured here, in turns; a share is of the peak measured in the same turn.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from experiments.cpu_dlrm.peak import compiled
from experiments.cpu_dlrm.tables import published
from recsys_lab.base.progress import Progress
from recsys_lab.base.ranges import Rounds, Threads, Width
from recsys_lab.models.linear import linear, product
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

SAMPLES, LAYERS = 1024, 5
WIDTHS = [1024, 2048, 4096]
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
PASSES = ("forward", "backward by data", "backward by weights")
QUESTION = "what share of the processor's peak an MLP's products reach"


@dataclass(frozen=True)
class Layer:
    """x [N, C], weight [K, C], grad [N, K]."""

    x: Tensor
    weight: Tensor
    grad: Tensor


#: By who computes, the three passes of a layer.
KERNELS: dict[str, tuple[Callable[[Layer], Tensor], ...]] = {
    "ours": (lambda of: linear(of.x, of.weight, None), lambda of: product(of.grad, of.weight), lambda of: product(of.grad.t(), of.x)),
    "torch": (
        lambda of: torch.nn.functional.linear(of.x, of.weight),
        lambda of: torch.mm(of.grad, of.weight),
        lambda of: torch.mm(of.grad.t(), of.x),
    ),
}
Case = tuple[str, int, str, str]  # format, width, whose, pass


def run(name: str, *, rounds: Rounds = 3, threads: Threads | None = None, widths: list[Width] = WIDTHS) -> Study:
    """`threads`: null for as many as torch takes."""
    threads = threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    peak = compiled(threads)
    formats = [format for format in FORMATS if peak.gflop_s(format)]
    shares: dict[Case, list[float]] = {}
    peaks: dict[str, list[float]] = {format: [] for format in formats}
    with Progress(len(formats) * len(widths) * rounds, "products", "turns") as bar:
        for format, width in itertools.product(formats, widths):
            layers = _layers(width, FORMATS[format])
            for _ in range(rounds):
                peaks[format].append(peak.gflop_s(format))
                for whose, passes in KERNELS.items():
                    for which, kernel in zip(PASSES, passes):
                        rate = _gflop_s(kernel, layers, width)
                        shares.setdefault((format, width, whose, which), []).append(100 * rate / peaks[format][-1])
                bar.update()
    return _study(name, {case: statistics.median(found) for case, found in shares.items()}, peaks, threads)


def _layers(width: int, dtype: torch.dtype) -> list[Layer]:
    torch.manual_seed(width)
    made = [(torch.randn(SAMPLES, width), torch.randn(width, width), torch.randn(SAMPLES, width)) for _ in range(LAYERS)]
    return [Layer(*(part.to(dtype) for part in parts)) for parts in made]


def _gflop_s(kernel: Callable[[Layer], Tensor], layers: list[Layer], width: int) -> float:
    kernel(layers[0])
    began = time.perf_counter()
    for layer in layers:
        kernel(layer)
    return 2 * SAMPLES * width * width * len(layers) / (time.perf_counter() - began) / 1e9


def _study(name: str, shares: dict[Case, float], peaks: dict[str, list[float]], threads: int) -> Study:
    theirs = published()["figure5"]
    means = {(f, w): statistics.mean(s for (ff, _, ww, _), s in shares.items() if (ff, ww) == (f, w)) for f in peaks for w in KERNELS}
    compared = {("fp32", "ours"): theirs["this work"], ("fp32", "torch"): theirs["PyTorch with MKL"]}
    lines = [Line(f"{w}, {f}: mean of all", share, compared.get((f, w)), "%", "measured") for (f, w), share in means.items()]
    lines += [Line(f"{w}, {f}, C = K = {n}: {p}", share, None, "%", "measured") for (f, n, w, p), share in shares.items()]
    rows = [
        (f, str(n), w, *(f"{shares[f, n, w, p]:.0f} %" for p in PASSES))
        for f in peaks
        for n in sorted({width for ff, width, _, _ in shares if ff == f})
        for w in KERNELS
    ]
    rows += [(f, "mean", w, "", f"{share:.0f} %", "") for (f, w), share in means.items()]
    columns = ("", "C = K", "", *PASSES)
    legend = (
        "Published, FP32 on a Skylake socket: this work 72 %, Facebook's 75 %, PyTorch with MKL 61 %, the mean of all. Ours: measured here."
    )
    found = {format: statistics.median(rates) for format, rates in peaks.items()}
    notes = (
        f"{threads} threads; peak "
        + ", ".join(f"{format} {rate:,.0f} GFLOP/s" for format, rate in found.items())
        + ", measured by peak.cpp.",
        "The paper's other MLP is Facebook's. The processor is another one: a share of peak can be compared, with care, a time cannot.",
    )
    shown = Shown(f"{name}: {QUESTION}", columns, tuple(rows), legend, columns[3:])
    statements = (
        ("an MLP's products in FP32 reach more of the peak than torch's with MKL", means["fp32", "ours"] > means["fp32", "torch"]),
    )
    data = {"peak_gflop_s": found, "threads": threads}
    return Study(name, QUESTION, tuple(lines), statements, notes, data, partial(_draw, name, shares, theirs), shown)


def _draw(name: str, shares: dict[Case, float], theirs: dict[str, float], folder: Path) -> list[Path]:
    """A group of bars a width and pass, a panel a format; the published means of FP32 as lines."""
    formats = list(dict.fromkeys(format for format, *_ in shares))
    with picture(folder / f"{name}.svg", len(formats), width=12.0, height=4.6) as (figure, axes):
        for axis, format in zip(axes, formats):
            groups = list(dict.fromkeys((width, which) for of, width, _, which in shares if of == format))
            for at, (whose, colour) in enumerate(zip(KERNELS, (BLUE, ORANGE))):
                heights = [shares[format, width, whose, which] for width, which in groups]
                axis.bar([place + 0.4 * at - 0.2 for place in range(len(groups))], heights, 0.36, color=colour, label=f"{whose}, measured")
            if format == "fp32":
                for (whose, share), style in zip(theirs.items(), ("-", "--", ":")):
                    axis.axhline(share, color=INK, linewidth=1, linestyle=style, label=f"published mean: {whose}")
            axis.set_xticks(range(len(groups)), [f"{width}\n{which.replace('backward ', '')}" for width, which in groups], fontsize=7)
            axis.set(title=format, ylim=(0, 110))
            axis.grid(visible=False, axis="x")
        axes[0].set_ylabel("share of the processor's peak, %")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return written(folder, name)
