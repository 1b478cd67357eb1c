"""Simulated against measured: every published time, told by the profiles on file and by fits that had nothing like it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.validation.fit import Found
from recsys_lab.base.files import out_file
from recsys_lab.errors import UserError
from recsys_lab.studies.pictures import BLUE, GREY, ORANGE, picture

NAME = "simulated_against_measured.svg"
BAND = 0.15


def out(text: str) -> Path:
    """The file that `--picture` names. UserError, before any work, where it is no SVG or could not be written."""
    path = out_file(text, "--picture", (".svg",))
    if not path.parent.is_dir():
        raise UserError("no such folder", where=path.parent, remedy="make it, or name another")
    return path


def draw(found: Sequence[Found], path: Path) -> None:
    """Two axes: points of the fits, and points left out of them, on logarithmic axes with the 15 % band."""
    times = [point for point in found if point.kind == "time"]
    if not times:
        raise UserError("no times to draw", where="--picture", given="collectives alone", remedy="leave out --only collectives")
    fitted = [(p.published, p.simulated) for p in times if p.fitted]
    plain = [(p.published, p.simulated) for p in times if not p.fitted]
    alone = [(p.published, p.left_out) for p in times if p.fitted]
    outside = [(p.published, ms) for p in times for ms in (one.simulated for name, one in p.predictions.items() if name != "system")]
    ends = [min(p.published for p in times) * 0.7, max(p.published for p in times) * 1.4]
    with picture(path, columns=2, width=7.2, height=3.8) as (_, axes):
        for axis, title in zip(axes, ("profiles on file", "predicted by fits without the point")):
            axis.fill_between(
                ends,
                [x * (1 - BAND) for x in ends],
                [x * (1 + BAND) for x in ends],
                color=GREY,
                alpha=0.2,
                linewidth=0,
                label="within 15 %",
            )
            axis.plot(ends, ends, color=GREY, linewidth=0.8)
            axis.set(
                xscale="log", yscale="log", xlim=ends, ylim=ends, title=title, xlabel="measured, ms", ylabel="simulated, ms", aspect="equal"
            )
        axes[0].scatter(*_sides(fitted), s=12, color=BLUE, label=f"fitted to ({len(fitted)})")
        axes[0].scatter(*_sides(plain), s=12, color=ORANGE, marker="^", label=f"nothing fitted ({len(plain)})")
        axes[1].scatter(*_sides(alone), s=12, color=BLUE, label=f"the point left out ({len(alone)})")
        axes[1].scatter(
            *_sides(outside), s=14, color=ORANGE, marker="^", label=f"its device, scale or\ngeneration left out ({len(outside)})"
        )
        for axis in axes:
            axis.legend(loc="upper left")


def _sides(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The first and the second of each pair, of which there may be none."""
    return [x for x, _ in pairs], [y for _, y in pairs]
