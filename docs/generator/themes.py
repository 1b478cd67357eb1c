"""Colours of the docs' pictures, and SVG that follows the reader's scheme: one file for light pages and for dark ones."""

from __future__ import annotations

import io
import re

from matplotlib.figure import Figure

#: Ink, soft ink, rules and ground of boxes on a light page -> the same on a dark one.
INK, SOFT, RULE, BOX = "#1f2328", "#59636e", "#d0d7de", "#f6f8fa"
DARK = {INK: "#e6edf3", SOFT: "#9198a1", RULE: "#3d444d", BOX: "#1c2126"}


def style(font_size: float, salt: str) -> dict:
    """matplotlib's settings for a picture whose text stays text. The same `salt` and data give the same file."""
    return {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": font_size,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": RULE,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": RULE,
    }


def svg_of(figure: Figure) -> str:
    """The figure as the text of a file that follows the reader's scheme."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return follows_scheme(out.getvalue())


def follows_scheme(svg: str) -> str:
    """`svg` with a style sheet that turns the colours of DARK where the reader's scheme is dark."""
    rules = "".join(
        f'[style*="{what}: {light}"],[{what}="{light}"]{{{what}:{dark} !important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    sheet = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return re.sub(r"<svg\b[^>]*>", lambda found: f"{found[0]}\n{sheet}", svg, count=1)
