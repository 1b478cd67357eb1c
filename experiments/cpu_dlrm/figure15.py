"""Figure 15: strong scaling on the machine of 8 sockets, beside the cluster. Simulated."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from experiments.cpu_dlrm.scaling import CLUSTER, COLOURS, NAMES
from experiments.cpu_dlrm.sockets import LACKS, SIMULATED, Parts, batch_of, parts
from experiments.cpu_dlrm.tables import published
from recsys_lab.studies.pictures import GREY, picture, written
from recsys_lab.studies.study import Line, Study

QUESTION = "a fixed batch on more sockets of one machine"
ONE_MACHINE = "skx8"
#: The large model needs four sockets' memory in the cluster; the machine's 1.5 TB hold it on four as well.
SOCKETS = {"dlrm_small": (1, 2, 4, 8), "dlrm_large": (4, 8), "dlrm_mlperf": (1, 2, 4, 8)}
ALIKE = 0.25


def run(name: str) -> Study:
    found = {(model, on): _of(model, on) for model in SOCKETS for on in (ONE_MACHINE, CLUSTER)}
    lines = [
        Line(f"{NAMES[model]} on {on}, {sockets} sockets", made.iteration, None, "ms", "simulated")
        for (model, on), of in found.items()
        for sockets, made in of.items()
    ]
    here = found["dlrm_mlperf", ONE_MACHINE]
    fall = {on: found["dlrm_mlperf", on][4].exchange / found["dlrm_mlperf", on][8].exchange for on in (ONE_MACHINE, CLUSTER)}
    lines.append(
        Line("MLPerf's all-to-all, 4 over 8 sockets", fall[ONE_MACHINE], published()[name]["exchange_from_4_to_8"], "times", "simulated")
    )
    lines += [Line(f"MLPerf's all-to-all, {n} sockets", made.exchange, None, "ms", "simulated") for n, made in here.items() if n > 1]
    faster = {key: of[min(of)].iteration / of[max(of)].iteration for key, of in found.items()}
    alike = all(abs(faster[model, ONE_MACHINE] / faster[model, CLUSTER] - 1) < ALIKE for model in SOCKETS)
    statements = (
        (f"8 sockets scale as in the cluster, within {ALIKE:.0%}, for each model", alike),
        ("from 4 to 8 sockets the all-to-all falls by less than in the cluster", fall[ONE_MACHINE] < fall[CLUSTER]),
    )
    data = {"times_faster": {f"{model} {on}": times for (model, on), times in faster.items()}}
    return Study(name, QUESTION, tuple(lines), statements, (LACKS, SIMULATED), data, partial(_draw, name, found))


def _of(model: str, on: str) -> dict[int, Parts]:
    return {sockets: parts(model, on, sockets, batch_of(model, "strong", sockets)) for sockets in SOCKETS[model]}


def _draw(name: str, found: dict[tuple[str, str], dict[int, Parts]], folder: Path) -> list[Path]:
    with picture(folder / f"{name}.svg", len(SOCKETS), width=11.0) as (figure, axes):
        for axis, model in zip(axes, SOCKETS):
            for on, style in ((ONE_MACHINE, "o-"), (CLUSTER, "s--")):
                of = found[model, on]
                colour = COLOURS[model] if on == ONE_MACHINE else GREY
                axis.plot(list(of), [of[min(of)].iteration / made.iteration for made in of.values()], style, color=colour, label=on)
            axis.set(title=NAMES[model], xlabel="sockets", ylim=(0, None))
            axis.legend()
        figure.suptitle(f"{QUESTION} (simulated)", fontsize=11)
    return written(folder, name)
