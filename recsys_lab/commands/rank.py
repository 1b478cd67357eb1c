"""`python -m recsys_lab rank model=... cluster=...`: which sharder is fastest for a model on a cluster, and which cannot be and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_lab.arguments import parser
from recsys_lab.config.command_line import CONF
from recsys_lab.data.batch import DataSet
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.planning import plan_for, plan_inputs, price
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.simulate import Simulated
from recsys_lab.units import human_bytes

#: Stands where a sharder that cannot be has no figure.
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Priced:
    """A sharder and its simulated iteration, or why there is none."""

    sharder: str
    simulated: Simulated | None
    fits: bool
    why: str | None = None


def main(argv: list[str]) -> int:
    """Prints all sharders, the fastest first, and those that cannot be with the reason."""
    line = parser("rank", "Which sharder for this model on this cluster: all of them planned and simulated, the fastest first.")
    line.add_argument("overrides", nargs="*", help="as for run.py: model=..., cluster=..., data=..., precision=..., but no sharder")
    line.add_argument("--sharders", help="some of them, such as torchrec,dmt; else all in conf/sharder")
    line.add_argument("--json", action="store_true", help="print the same as one JSON object")
    options = line.parse_args(argv)
    quiet_torchrec()
    names = options.sharders.split(",") if options.sharders else sorted(path.stem for path in (CONF / "sharder").glob("*.yaml"))
    experiments = {name: _experiment(options.overrides, name) for name in names}
    priced = fastest_first(experiments)
    if options.json:
        print(json.dumps({"ranked": [_as_json(one) for one in priced]}, indent=2))
    else:
        print_table(console(), _table(priced, experiments[names[0]]))
    return 0


def fastest_first(experiments: Mapping[str, Experiment]) -> list[Priced]:
    """The sharders of `experiments`, which differ in nothing else; those that cannot be come last.

    Raises UserError for a mistake that is no sharder's.
    """
    first = next(iter(experiments.values()))
    data = first.open_data()
    plan_inputs(first, data, first.cluster, first.batch_size)  # a mistake in model or data is said once, not for each sharder
    priced = [_priced(name, experiment, data) for name, experiment in experiments.items()]
    return sorted(priced, key=lambda one: one.simulated.iteration_ms if one.simulated else float("inf"))


def _experiment(overrides: Sequence[str], sharder: str) -> Experiment:
    if any(word.lstrip("+").startswith("sharder=") for word in overrides):
        raise UserError("all sharders are ranked", where="rank", given="sharder=...", remedy="choose some with --sharders")
    mode = [] if any(word.startswith("mode=") for word in overrides) else ["mode=simulate"]
    return of_words([*overrides, *mode, f"sharder={sharder}"], where="rank", needed="one model and one cluster are needed")


def _priced(name: str, experiment: Experiment, data: DataSet) -> Priced:
    try:
        planned = plan_for(experiment, data)
    except PlanDoesNotFit as error:
        return Priced(name, None, False, str(error))
    except UserError as error:
        return Priced(name, None, True, str(error))
    simulated, _ = price(planned, experiment.profile)
    return Priced(name, simulated, True)


def _as_json(one: Priced) -> dict[str, Any]:
    made = one.simulated
    return {
        "sharder": one.sharder,
        "fits": one.fits,
        "why_not": one.why,
        "iteration_ms": made and made.iteration_ms,
        "interval_ms": made and made.interval_ms and [made.interval_ms.low, made.interval_ms.high],
        "examples_per_second": made and made.examples_per_second,
        "phases_ms": made and made.phases_ms,
        "bytes_per_rank_max": made and made.bytes_per_rank.max,
        "cost_per_billion_samples": made and made.cost_per_billion_samples,
        "profile": made and made.profile,
        "extrapolates": made and made.extrapolates,
    }


def _table(sharders: Sequence[Priced], first: Experiment) -> Table:
    rows: list[tuple[str, ...]] = []
    priced = any(one.simulated and one.simulated.cost_per_billion_samples is not None for one in sharders)
    for one in sharders:
        made = one.simulated
        if made is None:
            rows.append((one.sharder, "does not fit" if not one.fits else "cannot be", *[DASH] * (5 if priced else 4)))
            continue
        told = made.interval_ms
        rows.append(
            (
                one.sharder,
                f"{made.iteration_ms:.2f}",
                f"{told.low:.3g}–{told.high:.3g}" if told else "not known",
                f"{made.examples_per_second:,.0f}",
                f"{made.phases_ms['exposed_embedding_comm']:.2f}",
                human_bytes(made.bytes_per_rank.max),
                *([f"{made.cost_per_billion_samples or 0:,.2f}"] if priced else []),
            )
        )
    columns = (
        "sharder",
        "ms",
        "90 % interval",
        "examples/s",
        "exposed ms",
        "a rank holds",
        *(["cost of 1e9 samples"] if priced else []),
    )
    where = f"{first.cluster.name}, {first.cluster.world_size} ranks, profile {first.profile.name}"
    why = " ".join(f"{one.sharder}: {one.why}." for one in sharders if one.why)
    note = f"Simulated, not measured. exposed: of the exchange of embeddings. {why}".strip()
    return Table(f"Sharders on {where}", columns, tuple(rows), note, columns[1:])
