"""Figures 13 and 14: weak scaling on the cluster: compute and communication, blocking and overlapped, and communication in its two kinds.

Simulated on cluster=clx64. The bars have no numbers; what the text says of them is judged.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from experiments.cpu_dlrm.scaling import CLUSTER, NAMES, SOCKETS
from experiments.cpu_dlrm.sockets import LACKS, SIMULATED, Parts, batch_of, parts
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, GREEN, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

MODELS = ("dlrm_large", "dlrm_mlperf")
QUESTIONS = {
    "figure13": "compute and communication that shows of an iteration, weak scaling, ms",
    "figure14": "all-to-all and all-reduce of an iteration, weak scaling, ms",
}
COLUMNS = {
    "figure13": {"compute": "compute", "communication": "communication", "iteration": "iteration"},
    "figure14": {
        "exchange": "all-to-all",
        "all_reduce": "all-reduce",
        "exposed_exchange": "all-to-all, exposed",
        "exposed_all_reduce": "all-reduce, exposed",
    },
}
Found = dict[tuple[str, int, bool], Parts]


def run(name: str) -> Study:
    found: Found = {
        (model, sockets, overlap): parts(model, CLUSTER, sockets, batch_of(model, "weak", sockets), overlap=overlap)
        for model in MODELS
        for overlap in (False, True)
        for sockets in SOCKETS[model]
        if sockets > 1
    }
    columns = COLUMNS[name]
    lines, rows = [], []
    for (model, sockets, overlap), of in found.items():
        how = "overlapped" if overlap else "blocking"
        values = [getattr(of, key) for key in columns]
        lines += [
            Line(f"{NAMES[model]}, {sockets} sockets, {how}: {what}", ms, None, "ms", "simulated")
            for what, ms in zip(columns.values(), values)
        ]
        rows.append((NAMES[model], str(sockets), how, *(f"{ms:.2f}" for ms in values)))
    heads = ("", "sockets", "", *columns.values())
    shown = Shown(f"{name}: {QUESTIONS[name]} (simulated)", heads, tuple(rows), "", heads[3:])
    draw = partial(_draw, name, found)
    return Study(name, QUESTIONS[name], tuple(lines), statements(name, found), (LACKS, SIMULATED), {}, draw, shown)


def statements(name: str, found: Found) -> tuple[tuple[str, bool], ...]:
    """What the text says (sections VI-D and VI-D2)."""
    sockets = [n for n in SOCKETS["dlrm_mlperf"] if n > 1]
    blocking = [found["dlrm_mlperf", n, False] for n in sockets]
    cost = [of.exchange + of.all_reduce for of in blocking]
    least = sockets[cost.index(min(cost))]
    if name == "figure13":
        hides = all(found[model, n, True].communication < found[model, n, False].communication for model, n, _ in found)
        return (
            ("MLPerf: communication costs less up to 8 sockets, and then more again", least == 8 and cost[-1] > min(cost)),
            ("overlap leaves less of communication to wait for", hides),
        )
    falls, grows = ([getattr(of, key) for of in blocking] for key in ("exchange", "all_reduce"))
    hidden = all(found[m, n, True].exposed_all_reduce < 0.5 * found[m, n, True].all_reduce for m, n, _ in found)
    return (
        ("MLPerf: the all-to-all's cost falls from 2 to 8 sockets", falls[0] > falls[sockets.index(8)]),
        ("MLPerf: the all-reduce's cost grows with the sockets", grows == sorted(grows)),
        ("the all-to-all is harder to hide than the all-reduce", hidden),
    )


def _draw(name: str, found: Found, folder: Path) -> list[Path]:
    stacked = ("compute", "exposed_exchange", "exposed_all_reduce") if name == "figure13" else ("exchange", "all_reduce")
    with picture(folder / f"{name}.svg", len(MODELS), width=11.0) as (figure, axes):
        for axis, model in zip(axes, MODELS):
            cases = [(sockets, overlap) for m, sockets, overlap in found if m == model]
            below = [0.0] * len(cases)
            for key, colour in zip(stacked, (BLUE, ORANGE, GREEN) if name == "figure13" else (ORANGE, GREEN)):
                values = [getattr(found[model, *case], key) for case in cases]
                axis.bar(range(len(cases)), values, bottom=below, color=colour, label=key.replace("_", " "))
                below = [a + b for a, b in zip(below, values)]
            axis.set_xticks(range(len(cases)), [f"{n}R\n{'overlap' if overlap else 'block'}" for n, overlap in cases], fontsize=7)
            axis.set(title=NAMES[model], ylabel="ms, simulated")
            axis.legend()
        figure.suptitle(f"{QUESTIONS[name]} (simulated)", fontsize=11)
    return written(folder, name)
