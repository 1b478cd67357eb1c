"""Small pieces of SVG, drawn by hand. They need no script, follow the page's CSS variables in light and dark, and print sharply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

#: Eight colours that stay apart for the colour-blind too (Okabe and Ito, 2008), repeated where there are more kinds.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f")


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


#: Width of a picture for phones, which have one of their own where a wide one would scroll (classes `wide` and `phone` of the page).
PHONE = 350.0
#: Width of a letter, about.
LETTER = 6.9


def cut(words: str, width: float) -> str:
    """`words` as far as they fit into `width`."""
    most = int(width / LETTER)
    return words if len(words) <= most else words[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def svg(width: float, height: float, parts: Sequence[str], label: str, css: str = "") -> str:
    """A picture that shrinks to the page's width, and scrolls on a phone. `label` is read aloud in its place. `css`: more classes."""
    drawn = f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    return f'<div class="{f"scroll {css}".strip()}">{drawn}</div>'


def rect(x: float, y: float, width: float, height: float, fill: str, tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}" fill="{fill}">{title}</rect>'


def text(x: float, y: float, words: str, anchor: str = "start", css: str = "") -> str:
    style = f' class="{css}"' if css else ""
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{css}"/>'


def polyline(points: Sequence[tuple[float, float]], stroke: str, dashed: bool = False) -> str:
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    dashes = ' stroke-dasharray="7 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="1.8" stroke-linejoin="round"{dashes}/>'


def dots(points: Sequence[tuple[float, float]], fill: str) -> str:
    return "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" fill="{fill}"/>' for x, y in points)


def legend(x: float, y: float, entries: Sequence[tuple[str, str]], width: float, dashed_from: int | None = None) -> tuple[str, float]:
    """Colour boxes with words, wrapped at `width`; and the height they take. From entry `dashed_from` on, boxes of two dashes."""
    parts, at, top = [], x, y
    for place, (words, fill) in enumerate(entries):
        size = 18 + 7.2 * len(words) + 16
        if at + size > x + width and at > x:
            at, top = x, top + 18
        whole = dashed_from is None or place < dashed_from
        box = rect(at, top - 9, 11, 11, fill) if whole else rect(at, top - 6, 5, 4, fill) + rect(at + 7, top - 6, 5, 4, fill)
        parts.append(box + text(at + 16, top, words))
        at += size
    return "".join(parts), top - y + 18


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) that span [low, high]. A range of rounding alone has those of a single value."""
    if not high - low > max(1e-12 * max(abs(low), abs(high)), 1e-300):
        pad = abs(low) * 0.05 or 0.5
        low, high = low - pad, high + pad
    raw = (high - low) / most
    exponent = math.floor(math.log10(raw))
    power = 10**exponent
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, max(12, -exponent)) for k in range(first, last + 1)]


def nice_bytes(high: float) -> list[float]:
    """Ticks from 0 to at least `high` that are round in the prefix in which `human_bytes` writes them."""
    unit = next((size for size in (1e12, 1e9, 1e6, 1e3) if high >= size), 1.0)
    return [tick * unit for tick in nice_ticks(0, max(high, 1) / unit, 4)]


def tick_text(value: float, ticks: Sequence[float]) -> str:
    """`value` with just the digits that tell the ticks apart."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{digits}f}"
