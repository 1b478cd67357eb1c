"""`python -m recsys_lab rank model=... cluster=...`: which sharder is fastest for a model on a cluster, and which cannot be and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from recsys_lab.arguments import parser
from recsys_lab.cluster import Cluster
from recsys_lab.config import command_line
from recsys_lab.config.schema import build
from recsys_lab.data.batch import DataSet
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.inputs import open_data
from recsys_lab.planning import named_batch_size, plan_for
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.simulate import Simulated, simulate
from recsys_lab.units import human_bytes

#: Stands where a sharder that cannot be has no figure.
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Ranked:
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
    given = line.parse_args(argv)
    quiet_torchrec()
    names = given.sharders.split(",") if given.sharders else sorted(path.stem for path in (command_line.CONF / "sharder").glob("*.yaml"))
    ranked = rank(given.overrides, names)
    if given.json:
        print(json.dumps({"ranked": [_as_json(one) for one in ranked]}, indent=2))
    else:
        print_table(console(), _table(ranked))
    return 0


def rank(overrides: Sequence[str], sharders: Sequence[str]) -> list[Ranked]:
    """The fastest first; then those that cannot be. Raises UserError for a mistake that is no sharder's."""
    first = _config(overrides, sharders[0])
    cluster, data = build(first.cluster), open_data(first)
    found = [_one(name, _config(overrides, name), cluster, data) for name in sharders]
    return sorted(found, key=lambda one: one.simulated.iteration_ms if one.simulated else float("inf"))


def _config(overrides: Sequence[str], sharder: str) -> DictConfig:
    if any(word.lstrip("+").startswith("sharder=") for word in overrides):
        raise UserError("all sharders are ranked", where="rank", given="sharder=...", remedy="choose some with --sharders")
    mode = [] if any(word.startswith("mode=") for word in overrides) else ["mode=simulate"]
    config = command_line.read([*overrides, *mode, f"sharder={sharder}"]).config
    if config is None:
        raise UserError("one model and one cluster are needed, not a sweep", where="rank", given=" ".join(overrides))
    return config


def _one(name: str, config: DictConfig, cluster: Cluster, data: DataSet) -> Ranked:
    try:
        made = plan_for(cluster, data, config, named_batch_size(config, cluster))
    except PlanDoesNotFit as error:
        return Ranked(name, None, False, str(error))
    except UserError as error:
        return Ranked(name, None, True, str(error))
    simulated, _ = simulate(made.steps, cluster, build(config.simulate.profile), made.plan, made.workload)
    return Ranked(name, simulated, True)


def _as_json(one: Ranked) -> dict[str, Any]:
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
    }


def _table(ranked: Sequence[Ranked]) -> Table:
    rows: list[tuple[str, ...]] = []
    priced = any(one.simulated and one.simulated.cost_per_billion_samples is not None for one in ranked)
    for one in ranked:
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
        "nine of ten",
        "examples/s",
        "exposed ms",
        "a rank holds",
        *(["cost of 1e9 samples"] if priced else []),
    )
    fastest = next((one.simulated for one in ranked if one.simulated), None)
    where = f"{fastest.cluster}, {fastest.world_size} ranks, profile {fastest.profile}" if fastest else "nothing fits"
    why = " ".join(f"{one.sharder}: {one.why}." for one in ranked if one.why)
    note = f"Simulated, not measured. exposed: of the exchange of embeddings. {why}".strip()
    return Table(f"Sharders on {where}", columns, tuple(rows), note, columns[1:])
