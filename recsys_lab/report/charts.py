"""One kit for every chart: matplotlib draws, and the SVG follows the reader's light or dark scheme. No page needs a script for it.

    with drawing(height=300) as axes:
        axes.plot(steps, losses)
        return chart(axes, "loss", "training loss")

matplotlib is imported when a chart is drawn, since help and refusals of a line must not wait for it.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Eight colours that stay apart for the colour-blind too (Okabe and Ito, 2008), repeated where there are more kinds.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f")
#: Ink, soft ink, rules, the ground of boxes, what no phase accounts for, a limit: on a light page.
INK, SOFT, RULE, BOX, OPEN, LIMIT = "#1f2328", "#59636e", "#d0d7de", "#f6f8fa", "#cfd5db", "#c0392b"
#: The same on a dark page.
DARK = {INK: "#e6edf3", SOFT: "#9198a1", RULE: "#3d444d", BOX: "#1c2126", OPEN: "#4a525b", LIMIT: "#ff7b6b"}
#: The same as a page of ours names them.
VARIABLES = {INK: "--ink", SOFT: "--soft", RULE: "--rule", BOX: "--card", OPEN: "--open", LIMIT: "--limit"}
#: CSS pixels of an inch, and widths of charts. Those up to `LARGEST` stand beside each other, and whole on a phone, which scrolls others.
PX, NARROW, LARGEST, WIDE = 96, 440, 560, 880
#: CSS pixels of a letter and of a line of a legend, about.
LETTER, LINE = 6.6, 18
TIP = "tip|"


def style(font_size: float = 9, salt: str = "recsys_lab") -> dict[Any, Any]:
    """matplotlib's settings for a chart whose text stays text. The same `salt` and data give the same file."""
    return {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": font_size,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": RULE,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": RULE,
    }


STYLE = style() | {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.linewidth": 0.6,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
}


@dataclass(frozen=True)
class Chart:
    """`svg`: without its heading. `classes`: of the element on the page, such as `wide`."""

    name: str
    title: str
    svg: str
    note: str = ""
    classes: str = ""


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def cut(words: str, width: float) -> str:
    """`words` as far as they fit into so many CSS pixels."""
    most = int(width / LETTER)
    return words if len(words) <= most else f"{words[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


@contextmanager
def drawing(
    width: float = NARROW, height: float = 280, left: float = 62, right: float = 14, top: float = 10, bottom: float = 42
) -> Iterator[Axes]:
    """The axes of an empty chart. Sizes and margins in CSS pixels; a legend needs `legend_height` more at the bottom."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure((width / PX, height / PX))
        yield figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))


def legend(axes: Axes, names: Sequence[str], colours: Sequence[str] | None = None) -> None:
    """A legend below the chart: everything on it that has a label, or `names` with a box in each of `colours`."""
    from matplotlib.patches import Patch

    boxes = None if colours is None else [Patch(color=fill, label=name) for name, fill in zip(names, colours)]
    axes.figure.legend(handles=boxes, loc="lower left", ncols=_columns(names, _width(axes)), columnspacing=1.2, borderaxespad=0.2)


def legend_height(names: Sequence[str], width: float = NARROW) -> int:
    """CSS pixels that a legend of `names` takes."""
    return LINE * -(-len(names) // _columns(names, width)) + 8


def _columns(names: Sequence[str], width: float) -> int:
    return max(1, min(len(names), int(width / (1.08 * LETTER * max(map(len, names)) + 42))))


def _width(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return float(figure.get_figwidth()) * PX


def prefixed(scale: Axis, unit: str = "") -> None:
    """Large figures of an axis as 1.5 k, 20 M, 3 GB."""
    from matplotlib.ticker import EngFormatter

    scale.set_major_formatter(EngFormatter(unit))


def box(axes: Axes, x: float, y: float, width: float, height: float, fill: str, words: str, classes: str = "") -> None:
    """A rectangle with its tip. The limits of `axes` stay as they are, which matplotlib's own bars look through one by one."""
    from matplotlib.patches import Rectangle

    tip(axes.add_artist(Rectangle((x, y), width, height, facecolor=fill, edgecolor="#ffffff80", linewidth=0.4)), words, classes)


#: Below a chart that has bars which end in this sign.
LONGER = "\N{MUCH GREATER-THAN}"
LONG_NOTE = f"A bar that ends in {LONGER} is longer than it is drawn; its figure stands beside it."
#: A bar this many times as long as the next is cut, to twice that one; one that is below `UNSEEN` of the longest is not made visible so.
MUCH_LONGER, UNSEEN = 4.0, 0.002


def limit_of(lengths: Sequence[float]) -> float:
    """Where bars are cut so that the longest do not squash the others; inf where none does."""
    sizes = sorted(map(abs, lengths), reverse=True)
    for longer, next_one in zip(sizes, sizes[1:]):
        if next_one > UNSEEN * sizes[0] and longer > MUCH_LONGER * next_one:
            return 2 * next_one
    return math.inf


def bar(axes: Axes, place: float, length: float, limit: float, fill: str, words: str, figure: str) -> None:
    """A horizontal bar from zero with its tip. Beyond `limit` it is cut, and says its `figure`."""
    drawn = max(-limit, min(length, limit))
    box(axes, min(drawn, 0.0), place - 0.35, abs(drawn), 0.7, fill, words)
    if drawn != length and figure:
        side = "left" if drawn > 0 else "right"
        axes.text(drawn, place, f" {LONGER} {figure} ", ha=side, va="center")


def tip(artist: Artist, words: str, classes: str = "") -> None:
    """What the browser shows while the pointer rests on `artist`; lines are separated by line breaks."""
    artist.set_gid(f"{TIP}{classes}|{words}")


def chart(axes: Axes, name: str, title: str, note: str = "", classes: str = "") -> Chart:
    """What was drawn on `axes`, for a page."""
    wide = "wide" if _width(axes) > LARGEST else ""
    return Chart(name, title, embedded(svg_text(axes.figure, name), title), note, f"{wide} {classes}".strip())


def embedded(svg: str, label: str) -> str:
    """`svg` of matplotlib as an element of our pages, in their colours. `label` is read aloud in its place."""
    body = svg[svg.index("<svg") :]
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body)[0])
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>|<style>.*?</style>|<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="([^"]*)">', _group, body).replace("xlink:href", "href")
    body = re.sub(r' font-family: [^;"]*;|\s*<g id="\w*"/>| transform="rotate\(-0 [^"]*"', "", body)
    for light, variable in VARIABLES.items():
        body = body.replace(light, f"var({variable})")
    head = f'<svg viewBox="0 0 {width:g} {height:g}" width="{width * PX / 72:.0f}" role="img" aria-label="{escape(label)}">'
    return re.sub(r"<svg\b[^>]*>", lambda _: head, re.sub(r"\n\s*", "\n", body), count=1)


def _group(match: re.Match[str]) -> str:
    """A group of matplotlib's without its name, which other charts of the page have too. Words of `tip` become a title."""
    if not match[1].startswith(TIP):
        return "<g>"
    classes, _, words = match[1].removeprefix(TIP).partition("|")
    return f"<g{f' class={chr(34)}{classes}{chr(34)}' if classes else ''}><title>{words}</title>"


def svg_text(figure: Any, salt: str) -> str:
    """The figure as SVG in light colours, on no ground."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts for names that ours has no letters for
        figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return out.getvalue().replace("#000000", INK)


def svg_file(figure: Any, salt: str = "recsys_lab") -> str:
    """The figure as the text of a file that follows the reader's scheme."""
    return follows_scheme(svg_text(figure, salt))


def follows_scheme(svg: str) -> str:
    """`svg` with a style sheet that turns the colours of DARK where the reader's scheme is dark."""
    rules = "".join(
        f'[style*="{what}: {light}"],[{what}="{light}"]{{{what}:{dark} !important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
        if light in svg
    )
    sheet = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return re.sub(r"<svg\b[^>]*>", lambda tag: f"{tag[0]}\n{sheet}", svg, count=1)


def element(one: Chart) -> str:
    """The chart with its title and its note, as HTML."""
    note = f'<p class="note">{escape(one.note)}</p>' if one.note else ""
    classes = f' class="{one.classes}"' if one.classes else ""
    return (
        f'<figure id="{escape(one.name)}"{classes}><figcaption>{escape(one.title)}</figcaption>'
        f'<div class="scroll">{one.svg}</div>{note}</figure>'
    )


def side_by_side(charts: Sequence[Chart]) -> str:
    """Charts in a row, which become a column where the window is narrow. A wide one has a row of its own."""
    return f'<div class="charts">{"".join(map(element, charts))}</div>' if charts else ""
