"""Figures 10 and 11: what an iteration spends in compute and in communication, blocking and overlapped, by the three exchanges.

Everything is measured here, on 2 and 4 processes of this machine, whose cores they share; the paper has a socket a rank. Models: the
small and the MLPerf one with their tables cut, which changes memory and not what is exchanged.
"""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

from experiments.cpu_dlrm.exchanges import CASES, measure
from launchers.local import launch
from recsys_lab.base.progress import Progress
from recsys_lab.base.ranges import RanksPerHost, Rounds
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, GREEN, GREY, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

#: Model -> its overrides: rows cut, and a batch that two small cores manage.
MODELS = {
    "small": ("model=dlrm_small", f"model.rows={[20_000] * 8}", "data.batch_size=1024", "data.distinct_rows=4096"),
    "MLPerf": ("model=dlrm_mlperf", f"model.rows={[20_000] * 26}", "data.batch_size=1024", "data.distinct_rows=4096"),
}
RANKS = [2, 4]
ROUNDS = 3
QUESTIONS = {
    "figure10": "compute and communication of an iteration, ms",
    "figure11": "of its communication: preparing, and waiting, ms",
}
LEGEND = " Preparing, waiting for and moving embeddings; (r): the all-reduce of dense gradients."
NOTES = (
    "R: ranks. Measured on processes that share this machine's cores: what overlaps takes the cores of what it overlaps with.",
    "Waiting for the exchange includes waiting for the slowest rank. What DistributedDataParallel copies counts as compute.",
    "Moving: how long at least one collective of the kind was under way; overlapped, most of it beside compute.",
)


def run(name: str, *, rounds: Rounds = ROUNDS, ranks: list[RanksPerHost] = RANKS) -> Study:
    lines: list[Line] = []
    rows: list[tuple[str, ...]] = []
    data: list[dict[str, Any]] = []
    with Progress(len(ranks), "exchanges in turns", "worlds") as bar:
        everything = {}
        for world in ranks:
            everything[world] = measured(world, rounds)
            bar.update()
    for world in ranks:
        for model, of_model in everything[world].items():
            for (exchange, overlap), found in zip(CASES, of_model):
                how = "overlap" if overlap else "blocking"
                parts = _figure10(found) if name == "figure10" else _figure11(found)
                what = f"{model}, {world} ranks, {how}, {exchange}"
                lines += [Line(f"{what}: {part}", ms, None, "ms", "measured") for part, ms in parts.items()]
                rows.append((f"{model} {world}R", how, exchange, *(f"{ms:.1f}" for ms in parts.values())))
                data.append({"model": model, "ranks": world, "overlap": overlap, "exchange": exchange, "ms": found})
    columns = ("", "", "exchange", *parts)
    legend = "All measured here; the paper's bars carry no numbers." + (LEGEND if name == "figure11" else "")
    shown = Shown(f"{name}: {QUESTIONS[name]}", columns, tuple(rows), legend, columns[3:])
    return Study(
        name,
        QUESTIONS[name],
        tuple(lines),
        statements(name, data),
        NOTES,
        {"measured": data, "rounds": rounds},
        partial(_draw, name, data),
        shown,
    )


def statements(name: str, data: list[dict[str, Any]]) -> tuple[tuple[str, bool], ...]:
    """What the paper's text says of these bars (section VI-D), on the model with most tables and with most ranks that were measured."""
    model, world = data[-1]["model"], data[-1]["ranks"]
    of = {(one["exchange"], one["overlap"]): one["ms"] for one in data if (one["model"], one["ranks"]) == (model, world)}
    where = f"{model}, {world} ranks"
    if name == "figure11":
        preparing = {exchange: of[exchange, False]["embedding.preparation"] for exchange, _ in CASES}
        return ((f"{where}: a scatter a table prepares longest", max(preparing, key=preparing.__getitem__) == "scatter_list"),)
    shown = {case: _figure10(ms)["communication"] for case, ms in of.items()}
    blocking = {exchange: ms for (exchange, overlap), ms in shown.items() if not overlap}
    return (
        (f"{where}: a scatter a table communicates longest", max(blocking, key=blocking.__getitem__) == "scatter_list"),
        (f"{where}: overlap leaves less of the all-to-all exposed", shown["all_to_all", True] < shown["all_to_all", False]),
    )


@cache
def measured(ranks: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """By model, for each case, ms of an iteration and of its communication."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = {"ranks": ranks, "models": MODELS, "rounds": rounds}
        return launch(measure, arguments, Path(folder), hosts=1, ranks_per_host=ranks)


def _figure10(found: dict[str, float]) -> dict[str, float]:
    communication = found["embedding.preparation"] + found["embedding.waiting"] + found["dense.waiting"]
    return {"compute": found["iteration"] - communication, "communication": communication, "iteration": found["iteration"]}


def _figure11(found: dict[str, float]) -> dict[str, float]:
    return {
        "prepare": found["embedding.preparation"],
        "wait": found["embedding.waiting"],
        "move": found["embedding.transfer"],
        "wait (r)": found["dense.waiting"],
        "move (r)": found["dense.transfer"],
    }


def _draw(name: str, data: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Each case as one bar of its parts, those that add up; a panel a model and number of ranks."""
    panels = list(dict.fromkeys((one["model"], one["ranks"]) for one in data))
    parts = {"compute": BLUE, "communication": ORANGE} if name == "figure10" else {"prepare": GREY, "wait": ORANGE, "wait (r)": GREEN}
    with picture(folder / f"{name}.svg", columns=len(panels), width=3.2 * len(panels), height=4.6) as (figure, axes):
        for axis, (model, ranks) in zip(axes, panels):
            cases = [one for one in data if (one["model"], one["ranks"]) == (model, ranks)]
            found = [_figure10(one["ms"]) if name == "figure10" else _figure11(one["ms"]) for one in cases]
            below = [0.0] * len(cases)
            for part, colour in parts.items():
                axis.bar(range(len(cases)), [of[part] for of in found], bottom=below, color=colour, label=part)
                below = [at + of[part] for at, of in zip(below, found)]
            labels = [f"{one['exchange']}\n{'overlap' if one['overlap'] else 'blocking'}" for one in cases]
            axis.set_xticks(range(len(cases)), labels, rotation=60, ha="right", fontsize=8)
            axis.set_title(f"{model}, {ranks} ranks of this machine")
        axes[0].set_ylabel("measured, ms an iteration")
        handles, texts = axes[0].get_legend_handles_labels()
        figure.legend(handles, texts, loc="outside lower center", ncols=len(texts))
    return written(folder, name)
