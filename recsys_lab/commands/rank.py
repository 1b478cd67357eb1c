"""`python -m recsys_lab rank model=... cluster=...`: the fastest sharder for a model on a cluster; unsupported ones with the reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from recsys_lab.base.arguments import parser
from recsys_lab.config.runless import check_runless
from recsys_lab.decide.price_words import price_words
from recsys_lab.decide.question import AS_SAID, AXES, ClusterAsked, Question, items_of
from recsys_lab.decide.rows import Row
from recsys_lab.decide.tables import DASH
from recsys_lab.errors import UserError
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.report.waiting import Bar
from recsys_lab.units import counted


def main(argv: list[str]) -> int:
    """Prints all sharders, the fastest first, and those that cannot be with the reason."""
    line = parser("rank", "Which sharder for this model on this cluster: all of them planned and simulated, the fastest first.")
    line.add_argument("overrides", nargs="*", help="as for run.py: model=..., cluster=..., data=..., precision=..., but no sharder")
    line.add_argument("--sharders", help="some of them, such as torchrec,dmt; else all in conf/sharder")
    line.add_argument("--json", action="store_true", help="print the same as one JSON object")
    options = line.parse_intermixed_args(argv)
    question = _question(options.overrides, options.sharders)
    from recsys_lab.decide.decision import ranked  # with torch, which neither help nor a mistake needs

    with Bar("sharders priced") as bar:
        rows = ranked(question, bar.update)
    if options.json:
        print(json.dumps({"ranked": [_as_json(row) for row in rows]}, indent=2))
    else:
        print_table(console(), _table(rows))
    return 0


def _question(words: Sequence[str], sharders: str | None) -> Question:
    """Of one config: its words say everything but the sharder."""
    check_runless(words, "rank", "simulate", "drop it, and keep the output: --json > FILE")
    for word in words:
        key = word.lstrip("+").partition("=")[0]
        if key == "sharder":
            raise UserError("all sharders are ranked", where="rank", given=word, remedy="choose some with --sharders")
        if key in (*AXES, "batch"):
            raise UserError("rank is of one config", where="rank", given=word, remedy=f"use python -m recsys_lab decide {word}")
    listed = [word for word in words if "," in word and word.partition("=")[0] in ("cluster", "precision", "optimizer", "model", "data")]
    if listed:
        group, _, values = listed[0].partition("=")
        remedy = "rank them one by one" if group in ("model", "data") else f"use python -m recsys_lab decide {group}s={values}"
        raise UserError("one is ranked at a time", where=f"rank {group}", given=listed[0], remedy=remedy)
    said = tuple(items_of("--sharders", sharders)) if sharders is not None else ()
    return Question(tuple(words), (ClusterAsked(AS_SAID, ()),), said, (AS_SAID,), (AS_SAID,), (AS_SAID,))


def _as_json(row: Row) -> dict[str, Any]:
    return {
        "sharder": row.sharder,
        "fits": row.fits,
        "why_not": row.why_not,
        "iteration_ms": row.ms,
        "interval_ms": row.ms_interval and list(row.ms_interval),
        "examples_per_second": row.samples_per_second,
        "phases_ms": row.phases_ms or None,
        "batch": row.batch,
        "batch_per_rank": row.batch_per_rank,
        "memory_gb": row.memory_gb,
        "cost_per_billion_samples": row.usd_per_1e9,
        "price": row.price and asdict(row.price),
        "profile": row.software,
        "extrapolates": row.extrapolates,
    }


def _table(rows: Sequence[Row]) -> Table:
    paid = any(row.usd_per_1e9 is not None for row in rows)
    cells = []
    for row in rows:
        if row.ms is None or row.memory_gb is None:
            cells.append((row.sharder, "cannot be" if row.fits else "does not fit", *[DASH] * (5 if paid else 4)))
            continue
        interval = row.ms_interval
        cells.append(
            (
                row.sharder,
                f"{row.ms:.2f}",
                f"{interval[0]:.3g}{DASH}{interval[1]:.3g}" if interval else "not known",
                f"{row.samples_per_second:,.0f}",
                f"{row.exposed_ms or 0:.2f}",
                f"{row.memory_gb:.1f}",
                *([f"{row.usd_per_1e9 or 0:,.2f}"] if paid else []),
            )
        )
    columns = ("sharder", "ms", "90 %", "samples/s", "exch.", "GB", *(["$/1e9"] if paid else []))
    first = rows[0]
    where = f"{first.cluster}, {counted(first.ranks, 'rank')} of {counted(first.batch_per_rank, 'sample')}, profile {first.profile}"
    why = " ".join(f"{row.sharder}: {row.why_not}." for row in rows if row.why_not)
    why = " ".join([*price_words([row for row in rows if row.ms is not None])[:2], why])
    note = f"Simulated, not measured. 90 %: the interval. exch.: ms of exposed embedding exchange. GB: of the fullest rank. {why}".strip()
    return Table(f"Sharders on {where}", columns, tuple(cells), note, columns[1:])
