"""Pictures of studies as files, drawn by the kit of all charts. The same data make the same file: no date, no random names inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from recsys_lab.base.files import write_text
from recsys_lab.report.charts import COLOURS, STYLE, svg_file
from recsys_lab.report.charts import INK as INK

BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
GREY = "#777777"
DPI = 120


@contextmanager
def picture(path: Path, columns: int = 1, rows: int = 1, width: float = 9.0, height: float = 4.0) -> Iterator[tuple[Figure, list]]:
    """A figure and its axes, row by row. It is written to `path`, and as PNG beside it for those who cannot open SVG."""
    with rc_context(STYLE | {"font.size": 10, "axes.titlesize": 10, "legend.fontsize": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)
        write_text(path, svg_file(figure))
        figure.savefig(path.with_suffix(".png"), dpi=DPI, metadata={"Software": None})


def written(folder: Path, name: str) -> list[Path]:
    return [folder / f"{name}.svg", folder / f"{name}.png"]
