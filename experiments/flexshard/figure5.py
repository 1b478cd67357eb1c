"""Figure 5: what more and more replicated rows cost in memory and save in communication; points A, B, C and D."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from experiments.flexshard.models import MODELS, access, published, setting, table
from recsys_lab.report.sections import Table
from recsys_lab.sharders.flexshard.allocate import SLACK_BYTES, Trade
from recsys_lab.sharders.flexshard.pareto import Point, curve, points
from recsys_lab.sharders.flexshard.rows import Rows
from recsys_lab.studies.pictures import BLUE, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study
from recsys_lab.units import GB

#: The paper names no table ("a production sequence embedding table") and shows its first 1.1 % of rows.
MODEL, SHOWN = "RM-1", 0.011
QUESTION = "memory and traffic as more rows are replicated"


def trade(model: str) -> Trade:
    return Trade(Rows.of_tables([table(model)], [access(model)["history"]]), setting())


def run(name: str) -> Study:
    lines, data = [], {}
    for model in MODELS:
        tiers = published().table5[model]
        rows = {"A": tiers["3-tier"].rows.replicated, "B": tiers["2-tier"].rows.replicated}
        found = points(trade(model))
        for point, given in found.items():
            published_rows = rows.get(point)
            what = f"{model} {point}"
            lines.append(Line(f"{what}: replicated", given.replicated, published_rows, "rows", by_construction=published_rows is not None))
            lines.append(Line(f"{what}: memory a rank", given.memory_bytes / GB, unit="GB", origin="simulated"))
            lines.append(Line(f"{what}: exchange an iteration", given.communication_ms, unit="ms", origin="simulated"))
        data[model] = {point: asdict(given) for point, given in found.items()}
    line = curve(trade(MODEL), int(SHOWN * table(MODEL).rows))
    a, b, c, d = (points(trade(MODEL))[point] for point in "ABCD")
    statements = (
        ("A is the minimum of memory", a.memory_bytes <= min(p.memory_bytes for p in line) + SLACK_BYTES),
        (
            "B is where memory is back at zero, with more communication saved than at A",
            _zero(b, d) and b.communication_ms < a.communication_ms,
        ),
        ("C saves the most communication, for more memory", c.communication_ms < b.communication_ms and c.memory_bytes > 0),
        (
            "D, the whole table, saves less than C for far more memory",
            d.memory_bytes > c.memory_bytes and d.communication_ms > c.communication_ms,
        ),
    )
    notes = (
        "The figure prints no numbers: held to what section 4.3 says of its points. Memory and exchange beyond row-wise sharding.",
        "Rows of A and B are table 5's, which the laws were fitted to. Where C lies depends on bandwidths that the paper does not print: "
        "these are nominal (README.md).",
    )
    data["curve"] = {"model": MODEL, "points": [asdict(p) for p in line]}
    return Study(name, QUESTION, tuple(lines), statements, notes, {"points": data}, draw, _shown(data))


def _shown(data: dict) -> Table:
    columns = ("", "point", "rows published", "replicated", "memory GB a rank", "exchange ms")
    rows = []
    for model in MODELS:
        tiers = published().table5[model]
        given = {"A": tiers["3-tier"].rows.replicated, "B": tiers["2-tier"].rows.replicated}
        for name, found in data[model].items():
            figures = f"{found['replicated']:,}", f"{found['memory_bytes'] / GB:+.3f}", f"{found['communication_ms']:+.1f}"
            rows.append((model, name, f"{given[name]:,} *" if name in given else "–", *figures))
    note = "* by construction: the laws were fitted to these. Memory and exchange: simulated, beyond row-wise sharding."
    return Table(f"figure5: {QUESTION}", columns, tuple(rows), note, columns[2:])


def _zero(point: Point, whole: Point) -> bool:
    return abs(point.memory_bytes) < 1e-4 * whole.memory_bytes


def draw(folder: Path) -> list[Path]:
    line = curve(trade(MODEL), int(1.05 * SHOWN * table(MODEL).rows))
    marks = [line[round(i * len(line) / 11.55)] for i in range(1, 12)]
    with picture(folder / "figure5.svg", 2) as (figure, (left, right)):
        left.plot([p.communication_ms for p in line], [p.memory_bytes / GB for p in line], color=BLUE)
        left.plot([p.communication_ms for p in marks], [p.memory_bytes / GB for p in marks], "|", color=BLUE, markersize=10)
        whole = curve(trade(MODEL), steps=2000)
        right.plot([p.communication_ms for p in whole], [p.memory_bytes / GB for p in whole], color=BLUE)
        for name, given in points(trade(MODEL)).items():
            for axis, here in ((left, name in "AB"), (right, True)):
                if here:
                    axis.plot([given.communication_ms], [given.memory_bytes / GB], "o", color=ORANGE)
                    axis.annotate(name, (given.communication_ms, given.memory_bytes / GB), textcoords="offset points", xytext=(6, 6))
        left.set(title="the first 1.1 % of rows, marked every 0.1 %", ylabel="memory beyond row-wise (GB a rank)")
        right.set(title="all rows")
        for axis in (left, right):
            axis.set_xlabel("exchange beyond row-wise (ms an iteration)")
            axis.axhline(0, color=INK, linewidth=0.8)
        figure.suptitle(f"More and more rows replicated, most frequent first ({MODEL}'s fitted law; simulated)", fontsize=11)
    return written(folder, "figure5")
