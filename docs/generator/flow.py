"""The architecture as one picture: what a run is made of, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from recsys_lab.report.charts import BOX, COLOURS, INK, RULE, SOFT, follows_scheme

BLUE, ORANGE = COLOURS[:2]
HIGH = 62  # of a box
#: Head of a box -> lines below it, colour of its border.
BOXES = {
    "model": (("tables, dense layers,", "operations a sample"), RULE),
    "data": (("how often each", "row is looked up"), RULE),
    "cluster": (("hosts, devices, memory,", "links: a YAML"), RULE),
    "precision": (("number formats,", "table optimizer"), RULE),
    "sharder": (("places every row", "of every table"), RULE),
    "plan": (("plain data: saved,", "read, explained"), INK),
    "steps": (("look-ups, collectives,", "bytes a rank"), INK),
    "simulator": (("times them on the", "named cluster"), ORANGE),
    "executor": (("trains on the ranks", "that you have"), BLUE),
    "simulated": (("ms, 90 % interval,", "memory, dollars"), ORANGE),
    "measured": (("AUC, NE, ms,", "collectives, bytes"), BLUE),
    "run folder": (("result.json, report,", "ablation table"), INK),
}
#: What the tests hold: the recorded collectives are those of the steps.
EQUAL = "tests: recorded = steps"
FOOT = ("A figure is measured or simulated, and the record says which.", "The same plan gives both.")

Points = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layout:
    """Where everything stands, in units of a drawing of `width` x `height`. The last two points of an arrow are its end."""

    width: int
    height: int
    boxes: dict[str, tuple[int, int, int]]  # head -> x, y, width
    arrows: tuple[Points, ...]
    equal: Points
    equal_words: tuple[int, int]
    foot: tuple[str, ...]  # its lines


WIDE = Layout(
    width=880,
    height=366,
    boxes={
        "model": (10, 20, 170),
        "data": (10, 98, 170),
        "cluster": (10, 176, 170),
        "precision": (10, 254, 170),
        "sharder": (220, 137, 125),
        "plan": (375, 137, 135),
        "steps": (540, 137, 145),
        "simulator": (540, 20, 145),
        "executor": (540, 254, 145),
        "simulated": (725, 20, 145),
        "measured": (725, 254, 145),
        "run folder": (725, 137, 145),
    },
    arrows=(
        ((180, 51), (200, 51), (200, 160), (220, 160)),
        ((180, 129), (200, 129), (200, 160), (220, 160)),
        ((180, 207), (200, 207), (200, 176), (220, 176)),
        ((180, 285), (200, 285), (200, 176), (220, 176)),
        ((345, 168), (375, 168)),
        ((510, 168), (540, 168)),
        ((612, 137), (612, 82)),
        ((442, 199), (442, 285), (540, 285)),
        ((685, 51), (725, 51)),
        ((685, 285), (725, 285)),
        ((797, 82), (797, 137)),
        ((797, 254), (797, 199)),
    ),
    equal=((612, 254), (612, 199)),
    equal_words=(620, 231),
    foot=(" ".join(FOOT),),
)
#: Two columns that a phone shows in the size of its text.
PHONE = Layout(
    width=400,
    height=656,
    boxes={
        "model": (10, 8, 180),
        "data": (210, 8, 180),
        "cluster": (10, 80, 180),
        "precision": (210, 80, 180),
        "sharder": (110, 166, 180),
        "plan": (110, 252, 180),
        "executor": (10, 346, 175),
        "steps": (215, 346, 175),
        "measured": (10, 446, 175),
        "simulator": (215, 446, 175),
        "run folder": (10, 536, 175),
        "simulated": (215, 536, 175),
    },
    arrows=(
        ((190, 39), (200, 39), (200, 166)),
        ((210, 39), (200, 39), (200, 166)),
        ((190, 111), (200, 111), (200, 166)),
        ((210, 111), (200, 111), (200, 166)),
        ((200, 228), (200, 252)),
        ((147, 314), (147, 346)),
        ((253, 314), (253, 346)),
        ((97, 408), (97, 446)),
        ((302, 408), (302, 446)),
        ((97, 508), (97, 536)),
        ((302, 508), (302, 536)),
        ((215, 567), (185, 567)),
    ),
    equal=((185, 377), (215, 377)),
    equal_words=(136, 430),
    foot=FOOT,
)


def flow_figure(layout: Layout = WIDE) -> str:
    """SVG text of the picture."""
    parts = [_arrow(points, INK) for points in layout.arrows]
    parts += [_arrow(layout.equal, BLUE, both=True), _text(*layout.equal_words, EQUAL, SOFT, 11)]
    for head, (lines, border) in BOXES.items():
        x, y, width = layout.boxes[head]
        box = f'<rect x="{x}" y="{y}" width="{width}" height="{HIGH}" rx="6" fill="{BOX}" stroke="{border}" stroke-width="1.5"/>'
        parts += [box, _text(x + 10, y + 20, head, INK, 14, bold=True)]
        parts += [_text(x + 10, y + 37 + 15 * at, line, SOFT, 11.5) for at, line in enumerate(lines)]
    below = layout.height - 16 - 18 * (len(layout.foot) - 1)
    parts += [_text(10, below + 18 * at, line, SOFT, 12.5) for at, line in enumerate(layout.foot)]
    heads = "".join(_head(colour) for colour in (INK, BLUE))
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {layout.height}" font-family="system-ui, sans-serif">'
    return follows_scheme(f"{start}\n<defs>{heads}</defs>\n" + "\n".join(parts) + "\n</svg>\n")


def _head(colour: str) -> str:
    arrow = f'<path d="M0 0 8 4 0 8z" fill="{colour}"/>'
    return f'<marker id="{_name(colour)}" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto-start-reverse">{arrow}</marker>'


def _arrow(points: Points, colour: str, both: bool = False) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    start = f' marker-start="url(#{_name(colour)})"' if both else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4" marker-end="url(#{_name(colour)})"{start}/>'


def _text(x: float, y: float, words: str, colour: str, size: float, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size:g}"{weight}>{escape(words)}</text>'


def _name(colour: str) -> str:
    return f"head{colour.removeprefix('#')}"
