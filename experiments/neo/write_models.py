"""Writes conf/model/neo_a.yaml, neo_f.yaml and neo_i.yaml from Neo's table 3 and what it leaves open.

    python experiments/neo/write_models.py           # --check: only compare with what is there

Published, and met: parameters, least, greatest and mean dimension, mean look-ups, FLOPs, layers and their mean width. So is the number
of tables where the paper has one.

Free, and chosen here (`FREE`):

- The number of tables of F and I, within "~ 10s" and "~ 100s". A exchanges more than I, as section 8.3 says. A GPU has four times as
  many samples of I, so I has fewer than 252 tables.
- The spread of rows, dimensions and look-ups about their means. Spreads are log-normal quantiles. Fixed permutations deal them to the
  tables.
- The split of the MLPs into bottom and over layers.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import brentq
from scipy.stats import norm

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 132


@dataclass(frozen=True)
class Free:
    """`row_spread`, `length_spread`: sigma of a log-normal. `largest_gb`: of a table in FP32, so that whole tables fit a GPU; None: no
    limit. `dense`: dense values of a sample; `bottom`: layers of the bottom MLP. `words`: that the model's command needs beside.
    """

    tables: int
    row_spread: float
    length_spread: float
    largest_gb: float | None
    dense: int
    bottom: int
    about: str
    words: str = ""


FREE = {
    "neo_a": Free(1000, 2.0, 0.8, 20.0, 1024, 5, "Many tables of mixed dimensions: it stresses compute and exchange."),
    "neo_f": Free(
        *(10, 1.0, 0.8, None, 256, 2),
        "Ten giant tables: it stresses capacity. Its 24 TB in FP16 are in the memory of 16 hosts and their devices.",
        "precision=fp16_tables ",
    ),
    "neo_i": Free(200, 2.0, 0.8, 20.0, 1024, 12, "High average pooling: it stresses memory bandwidth."),
}


def normals(count: int) -> np.ndarray:
    """Quantiles of the normal distribution, rising."""
    return norm.ppf((np.arange(count) + 0.5) / count)


def whole(values: np.ndarray, total: int, least: int, most: int, unit: int = 1) -> np.ndarray:
    """`values` times what makes them add up to `total`, in multiples of `unit` between `least` and `most`"""

    def scaled(log_factor: float) -> np.ndarray:
        return np.clip(np.round(values * np.exp(log_factor) / unit) * unit, least, most).astype(np.int64)

    low, high = -40.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if scaled(middle).sum() <= total else (low, middle)
    found = scaled(low)
    missing = (total - int(found.sum())) // unit
    open_to = np.flatnonzero(found < most)[::-1]
    for step in range(missing):
        found[open_to[step % len(open_to)]] += unit
    return found


def dims_of(count: int, columns: tuple[int, int], mean: int) -> np.ndarray:
    least, most = columns
    if least == most:
        return np.full(count, mean)
    return whole(np.exp(0.9 * normals(count)), mean * count, least, most, unit=4)


def rows_of(dims: np.ndarray, parameters: float, free: Free, rng: np.random.Generator) -> np.ndarray:
    shape = np.exp(free.row_spread * rng.permutation(normals(len(dims))))
    most = np.full(len(dims), np.inf) if free.largest_gb is None else free.largest_gb * 1e9 / (4 * dims)

    def rows(log_factor: float) -> np.ndarray:
        return np.maximum(np.minimum(shape * np.exp(log_factor), most), 10)

    return rows(brentq(lambda x: (rows(x) * dims).sum() - parameters, -10, 60, xtol=1e-12)).round().astype(np.int64)


def layers_of(columns: int, given: dict[str, Any], free: Free) -> tuple[list[int], list[int]]:
    """(bottom, over): `layers` layers of mean width `layer`, whose products take FLOPs / 2 multiply-adds forward.

    All are alike but the last, of one logit, and the first of the over MLP, which reads all columns: its width makes the FLOPs right.
    """
    alike = given["layers"] - 2

    def widths(first: int) -> tuple[list[int], list[int]]:
        total = given["layers"] * given["layer"] - first - 1
        each = [total // alike + (i < total % alike) for i in range(alike)]
        return each[: free.bottom], [first, *each[free.bottom :], 1]

    def off(first: int) -> float:
        return abs(products(columns, *widths(first), free) - given["flops"] * 1e6 / 2)

    return widths(min(range(1, 2 * given["layer"]), key=off))


def products(columns: int, bottom: list[int], over: list[int], free: Free) -> int:
    """Multiply-adds of a sample."""
    sizes = [free.dense, *bottom], [columns + bottom[-1], *over]
    return sum(a * b for row in sizes for a, b in zip(row, row[1:]))


def text_of(name: str, given: dict[str, Any], free: Free) -> str:
    """The file."""
    rng = np.random.default_rng(2104)
    dims = rng.permutation(dims_of(free.tables, given["columns"], given["dim"]))
    lengths = rng.permutation(whole(np.exp(free.length_spread * normals(free.tables)), given["length"] * free.tables, 1, 1 << 20))
    bottom, over = layers_of(int(dims.sum()), given, free)
    dense = products(int(dims.sum()), bottom, over, free) + sum(bottom) + sum(over)
    rows = rows_of(dims, given["parameters"] - dense, free, rng)
    lines = [
        f"# Neo's model {name[-1].upper()} (arXiv 2104.05158, table 3): {given['parameters'] / 1e9:,.0f} G parameters, "
        f"{given['flops']} MFLOP a sample forward.",
        f"# {free.about}",
        "# What the paper leaves open is chosen, and this file written, by experiments/neo/write_models.py.",
        "# One state a row, as the paper has it (5.2): a state a weight does not fit.",
        f"# python run.py model={name} data=random sharder=neo_4d cluster=zionex_x16 {free.words}mode=simulate"
        + " profile@simulate.profile=neo",
        "defaults:",
        "  - override /optimizer@_global_.optimizer: row_wise_adagrad",
        "  - _self_",
        "_target_: recsys_lab.models.concat.Concat",
        f"embedding_dim: {given['dim']} # the mean; each table's own: dims",
        f"bottom_layers: [{', '.join(map(str, bottom))}]",
        *listed("over_layers", over),
        "dropout: 0.0",
        *listed("rows", rows.tolist()),
        *listed("lengths", lengths.tolist()),
        *([f"dims: null # all {given['dim']}"] if given["columns"][0] == given["columns"][1] else listed("dims", dims.tolist())),
        f"dense_features: {free.dense}",
    ]
    return "\n".join(lines) + "\n"


def listed(key: str, values: list[int]) -> list[str]:
    lines: list[str] = []
    line = " "
    for value in values:
        if len(line) + len(f" {value},") > WIDTH:
            lines, line = [*lines, line], " "
        line += f" {value},"
    return [f"{key}: [", *lines, line, "]"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where a file differs")
    only_compare = parser.parse_args().check
    published = yaml.safe_load((ROOT / "experiments" / "neo" / "published.yaml").read_text(encoding="utf-8"))["table3"]
    differ = False
    for name, free in FREE.items():
        path, text = ROOT / "conf" / "model" / f"{name}.yaml", text_of(name, published[name], free)
        if only_compare:
            differ |= not path.exists() or path.read_text(encoding="utf-8") != text
        else:
            path.write_text(text, encoding="utf-8")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
