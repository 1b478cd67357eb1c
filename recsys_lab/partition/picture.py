"""DMT's figure 9 of a partition: the affinity with towers side by side, and the plane with towers in colour."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from recsys_lab.base.files import write_text
from recsys_lab.errors import cannot_write
from recsys_lab.report.charts import RULE, SOFT, STYLE, svg_file
from recsys_lab.sharders.dmt.names import OF_SAMPLES
from recsys_lab.sharders.dmt.partition_file import Partition

SUFFIXES = (".svg", ".png", ".pdf")
MOST_NAMED = 48  # features, beyond which names would lie on one another
#: Towers beyond the colours take the next shape.
SHAPES = "osD^vP*X"


def draw(partition: Partition, path: Path) -> None:
    """Writes the picture. The same partition makes the same file.

    `path` ends in one of SUFFIXES. Raises UserError where it cannot be written.
    """
    with matplotlib.rc_context(STYLE | {"axes.titlesize": 10, "axes.grid": False}):
        figure = Figure(figsize=(13.0, 6.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        _matrix(left, partition)
        _plane(right, partition)
        if path.suffix == ".svg":
            write_text(path, svg_file(figure))
            return
        try:
            figure.savefig(path, dpi=120, metadata={"Software": None} if path.suffix == ".png" else None)
        except OSError as error:
            raise cannot_write(error, path) from None


def _matrix(axes, partition: Partition) -> None:
    number = {name: at for at, name in enumerate(partition.features)}
    order = [number[name] for tower in partition.towers for name in tower]
    affinity = np.array(partition.affinity)[np.ix_(order, order)]
    np.fill_diagonal(affinity, np.nan)
    image = axes.imshow(affinity, cmap="viridis", vmin=0.0, interpolation="nearest")
    first = 0
    for tower, names in enumerate(partition.towers):
        box = Rectangle(
            (first - 0.5, first - 0.5), len(names), len(names), fill=False, linewidth=2.0, edgecolor=_colour(tower), clip_on=False
        )
        axes.add_patch(box)
        first += len(names)
    labels = [partition.features[at] for at in order] if len(order) <= MOST_NAMED else []
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        colours = [_colour(tower) for tower, names in enumerate(partition.towers) for _ in names]
        for label, colour in zip(ticks, colours):
            label.set_color(colour)
    of_samples = partition.source.get("absolute") == OF_SAMPLES
    axes.set_title(f"affinity: {'mean |cos|' if of_samples else '|mean cos|'} of two features' embeddings, tower by tower")
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label="affinity")


def _plane(axes, partition: Partition) -> None:
    at = dict(zip(partition.features, principal(np.array(partition.coordinates))))
    for tower, names in enumerate(partition.towers):
        x, y = ([at[name][axis] if len(at[name]) > axis else 0.0 for name in names] for axis in (0, 1))
        axes.scatter(x, y, s=60, color=_colour(tower), marker=SHAPES[tower // 10 % len(SHAPES)], label=f"tower {tower}", zorder=3)
        if len(partition.features) <= MOST_NAMED:
            for name, left, up in zip(names, x, y):
                axes.annotate(name, (left, up), xytext=(5, 4), textcoords="offset points", fontsize=7, color=SOFT)
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(color=RULE)
    axes.set_axisbelow(True)
    beyond = len(partition.coordinates[0]) - 2
    space = f"the widest plane of {beyond + 2} dimensions" if beyond > 0 else "a plane" if beyond == 0 else "a line"
    axes.set_title(f"{partition.strategy}: distances as near to f(affinity) as can be (stress {partition.stress:.2f}), {space}")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def principal(points: np.ndarray) -> np.ndarray:
    """Coordinates [F, n] turned so that the first axis is the widest, then the second. The farthest point of each axis is on its right."""
    points = points - points.mean(axis=0)
    turned = points @ np.linalg.svd(points, full_matrices=False)[2].T
    farthest = np.abs(turned).argmax(axis=0)
    return turned * np.sign(turned[farthest, np.arange(turned.shape[1])])


def _colour(tower: int):
    return matplotlib.colormaps["tab10"](tower % 10)
