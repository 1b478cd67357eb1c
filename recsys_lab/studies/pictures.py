"""How the studies' pictures look. The same data make the same file: no date, no random names inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

#: Readable by people who confuse red and green (Okabe and Ito).
BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#777777"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "recsys_lab",
    "figure.dpi": 120,
}


@contextmanager
def picture(path: Path, columns: int = 1, rows: int = 1, width: float = 9.0, height: float = 4.0) -> Iterator[tuple[Figure, list]]:
    """A figure and its axes, row by row. It is written to `path`, and as PNG beside it for those who cannot open SVG."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")
        for axis in axes.flat:
            axis.set_axisbelow(True)
        yield figure, list(axes.flat)
        figure.savefig(path, metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), metadata={"Software": None})
        plt.close(figure)


def written(folder: Path, name: str) -> list[Path]:
    return [folder / f"{name}.svg", folder / f"{name}.png"]
