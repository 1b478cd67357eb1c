"""The architecture as one picture: what a run is made of, and in which order."""

from __future__ import annotations

from html import escape

from docs.generator.themes import BOX, INK, RULE, SOFT, follows_scheme

WIDTH, HEIGHT = 880, 366
BLUE, ORANGE = "#0072b2", "#e69f00"
#: x, y, width, height, head, lines below it, colour of the border
BOXES = (
    (10, 20, 170, 62, "model", ("tables, dense layers,", "operations a sample"), RULE),
    (10, 98, 170, 62, "data", ("how often each", "row is looked up"), RULE),
    (10, 176, 170, 62, "cluster", ("hosts, devices, memory,", "links: a YAML"), RULE),
    (10, 254, 170, 62, "precision", ("number formats,", "table optimizer"), RULE),
    (220, 137, 125, 62, "sharder", ("places every row", "of every table"), RULE),
    (375, 137, 135, 62, "plan", ("plain data: saved,", "read, explained"), INK),
    (540, 137, 145, 62, "steps", ("look-ups, collectives,", "bytes a rank"), INK),
    (540, 20, 145, 62, "simulator", ("times them on the", "named cluster"), ORANGE),
    (540, 254, 145, 62, "executor", ("trains on the ranks", "that you have"), BLUE),
    (725, 20, 145, 62, "simulated", ("ms, 90 % interval,", "memory, dollars"), ORANGE),
    (725, 254, 145, 62, "measured", ("AUC, NE, ms,", "collectives, bytes"), BLUE),
    (725, 137, 145, 62, "run folder", ("result.json, report,", "ablation table"), INK),
)
#: Points of each arrow, its last two being the end.
ARROWS = (
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
)
#: What the tests hold: the recorded collectives are those of the steps.
EQUAL = ((612, 254), (612, 199))


def flow_figure() -> str:
    """SVG text of the picture."""
    parts = [_arrow(points, INK) for points in ARROWS]
    parts += [_arrow(EQUAL, BLUE, both=True), _text(620, 231, "tests: recorded = steps", SOFT, 11)]
    for x, y, width, height, head, lines, border in BOXES:
        box = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{BOX}" stroke="{border}" stroke-width="1.5"/>'
        parts += [box, _text(x + 10, y + 20, head, INK, 14, bold=True)]
        parts += [_text(x + 10, y + 37 + 15 * at, line, SOFT, 11.5) for at, line in enumerate(lines)]
    parts.append(_text(10, 350, "A figure is measured or simulated, and the record says which. The same plan gives both.", SOFT, 12.5))
    heads = "".join(_head(colour) for colour in (INK, BLUE))
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif">'
    return follows_scheme(f"{start}\n<defs>{heads}</defs>\n" + "\n".join(parts) + "\n</svg>\n")


def _head(colour: str) -> str:
    arrow = f'<path d="M0 0 8 4 0 8z" fill="{colour}"/>'
    return f'<marker id="{_name(colour)}" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto-start-reverse">{arrow}</marker>'


def _arrow(points: tuple[tuple[int, int], ...], colour: str, both: bool = False) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    start = f' marker-start="url(#{_name(colour)})"' if both else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4" marker-end="url(#{_name(colour)})"{start}/>'


def _text(x: float, y: float, words: str, colour: str, size: float, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size:g}"{weight}>{escape(words)}</text>'


def _name(colour: str) -> str:
    return f"head{colour.removeprefix('#')}"
