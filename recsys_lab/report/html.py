"""The frame of our pages: one file, inline style, no request to anywhere, no script but one that is named. Light, dark and print."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from recsys_lab.report.sections import Table

STYLE = """
:root { --page:#fff; --ink:#1b1f24; --soft:#5b6570; --rule:#d7dce1; --card:#f6f8fa; --open:#cfd5db; --limit:#c0392b;
  --shade:rgb(0 0 0 / 22%); color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --page:#14171a; --ink:#e4e8ec; --soft:#9aa5b1; --rule:#343a41; --card:#1c2126; --open:#4a525b; --limit:#ff7b6b;
    --shade:rgb(255 255 255 / 25%); } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px clamp(12px, 4vw, 24px) 60px; max-width: 940px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
body.wide { max-width: 1400px; }
h1 { font-size: 25px; margin: 0 0 4px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 38px 0 10px; padding-bottom: 4px; border-bottom: 1px solid var(--rule); }
h3 { font-size: 15px; margin: 20px 0 6px; }
p { margin: 6px 0; } .soft, .note { color: var(--soft); }
.failed { border-left: 4px solid var(--limit); background: var(--card); padding: 8px 14px; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin: 18px 0 6px; }
@media (min-width: 601px) { .cards:has(> :nth-child(6):last-child) { grid-template-columns: repeat(3, 1fr); } } /* not five and one */
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 10px 14px; }
.card .value { font-size: 23px; font-weight: 600; font-variant-numeric: tabular-nums; }
.card .words { font-size: 18px; line-height: 1.6; }
.card .origin { font-size: 12px; color: var(--soft); }
.card.simulated { border-style: dashed; }
nav.contents { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 14px 0 4px; font-size: 13.5px; } a { color: inherit; }
figure { margin: 14px 0; min-width: 0; } figcaption { font-weight: 600; font-size: 13.5px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 0 20px; }
figure.wide { grid-column: 1 / -1; } meter { width: 100%; height: 18px; }
.scroll { overflow-x: auto; background: /* a shadow where there is more to the right */
  linear-gradient(to left, var(--page) 30%, transparent) right / 40px 100% no-repeat local,
  linear-gradient(to left, var(--shade), transparent) right / 14px 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: 13.5px; margin: 4px 0 8px; }
th, td { text-align: left; padding: 3px 18px 3px 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  overflow-wrap: break-word; white-space: pre-line; }
th { color: var(--soft); font-weight: 600; white-space: pre; vertical-align: bottom; }
body.wide th { white-space: pre-line; } body.wide :is(th, td) { padding-right: 12px; }
td.right, th.right { text-align: right; font-variant-numeric: tabular-nums; white-space: pre; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 12px; font-size: 12.5px; line-height: 1.4;
  white-space: pre-wrap; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; display: block; } svg text { fill: var(--ink); } svg * { stroke-linejoin: round; }
@media screen and (max-width: 600px) { figure.wide svg { max-width: none; } .card .value { font-size: 17px; white-space: nowrap; }
  .card .words { white-space: normal; line-height: 1.3; }
  table { font-size: 11.5px; } :is(body, body.wide) :is(th, td) { padding-right: 8px; }
  td:last-child:nth-child(2) { overflow-wrap: anywhere; } }
@page { margin: 12mm; } @page wide { size: landscape; margin: 12mm; }
@media print { nav.contents { display: none; }
  body, body.wide { max-width: none; padding: 0; font-size: 10pt; } body.wide { page: wide; }
  h2, h3, h2 + .note { break-after: avoid; } svg, tr, figure, .cards { break-inside: avoid; } thead { display: table-header-group; }
  .scroll { overflow: visible; background: none; } table { font-size: 8.5pt; } :is(body, body.wide) :is(th, td) { padding-right: 9px; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def document(title: str, body: Sequence[str], wide: bool = False, reload_s: int | None = None, script: str = "") -> str:
    """A whole page.

    The policy in its head forbids every request, also one that a mistake of ours would make. It also forbids any script but `script`.

    `reload_s`: the open page reloads itself so often.
    """
    allowed = f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" if script else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{allowed}\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        + (f'<meta http-equiv="refresh" content="{reload_s}">' if reload_s else "")
        + f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        + ('<body class="wide">\n' if wide else "<body>\n")
        + "\n".join(body)
        + (f"\n<script>{script}</script>" if script else "")
        + "\n</body></html>\n"
    )


def cards(figures: Sequence[tuple[str, str, str]]) -> str:
    """A row of cards: what it is, its value, and where that is from. The frame of a simulated one is dashed."""
    return '<div class="cards">' + "".join(map(_card, figures)) + "</div>" if figures else ""


def _card(figure: tuple[str, str, str]) -> str:
    what, value, origin = figure
    dashed, words = " simulated" * origin.startswith("simulated"), "" if any(map(str.isdigit, value)) else " words"
    return (
        f'<div class="card{dashed}"><div>{escape(what)}</div><div class="value{words}">{escape(value)}</div>'
        f'<div class="origin">{escape(origin)}</div></div>'
    )


def _cell(section: Table, row: int, column: str, cell: str) -> str:
    return f"<strong>{escape(cell)}</strong>" if (row, column) in section.bold else escape(cell)


def table(section: Table, level: int = 3) -> str:
    """A section's table under its heading, its note below. The note alone where there are no rows."""
    parts = [f"<h{level}>{escape(section.title)}</h{level}>"] if level else []
    if section.rows:
        css = {column: ' class="right"' if column in section.right else "" for column in section.columns}
        head = "".join(f"<th{css[c]}>{escape(c)}</th>" for c in section.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td{css[c]}>{_cell(section, i, c, cell)}</td>" for c, cell in zip(section.columns, row)) + "</tr>"
            for i, row in enumerate(section.rows)
        )
        parts.append(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>')
    if section.note:
        parts.append(f'<p class="note">{escape(section.note)}</p>')
    return "".join(parts)
