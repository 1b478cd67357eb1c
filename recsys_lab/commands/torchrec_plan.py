"""`python -m recsys_lab torchrec_plan FILE ...`: a TorchRec plan, as JSON: explained, priced, beside plans of ours."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_file, plain
from recsys_lab.config.no_run_folder import check_no_run_folder
from recsys_lab.errors import PlanDoesNotFit

if TYPE_CHECKING:
    from recsys_lab.interop.torchrec_json import Priced


def _code(own: Priced) -> int:
    """0. Raises PlanDoesNotFit where the plan of the file does not."""
    if own.why_not:
        raise PlanDoesNotFit(own.why_not)
    return 0


def main(argv: list[str]) -> int:
    """Prints what the plan means and what it costs, beside plans of ours.

    UserError for a file that is no such plan, and for wrong words. PlanDoesNotFit, after the rest, for a plan that does not fit.
    """
    line = parser("torchrec_plan", "A TorchRec plan, written with json.dump(plan._serialize(), file): what it means, and what it costs.")
    line.add_argument("file", metavar="FILE", help="the JSON; with --write it is written")
    line.add_argument("overrides", nargs="+", help="as for run.py: model=tables model.file=TABLES.csv cluster=...")
    line.add_argument("--write", metavar="SHARDER", help="first write FILE: the plan of a sharder of ours, as TorchRec's")
    line.add_argument("--beside", default="neo_4d", metavar="SHARDERS", help="sharders of ours to compare with, by commas (neo_4d)")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    options = line.parse_intermixed_args(argv)
    check_no_run_folder(options.overrides, "torchrec_plan", None, "drop it, and keep the output: --json > FILE")
    from recsys_lab import api  # with Hydra, which the help does not need
    from recsys_lab.interop import torchrec_json
    from recsys_lab.plan.explain import explain, table_facts
    from recsys_lab.report.sections import Table
    from recsys_lab.report.terminal import console, print_table
    from recsys_lab.units import counted

    experiment = api.compose(*options.overrides)
    if options.write is not None:
        out = out_file(options.file, "FILE", (".json",))
        planned = api.plan(*options.overrides, f"sharder={options.write}").plan
        torchrec_json.write(out, planned, "cuda" if experiment.cluster.device.kind == "cuda" else "cpu")
    plan = torchrec_json.plan_of(options.file, experiment)
    sharders = [name for name in options.beside.split(",") if name]
    priced = torchrec_json.compared(options.file, sharders, *options.overrides)
    if options.json:
        print(json.dumps(plain({"plan": plan.to_json(), "priced": {name: asdict(one) for name, one in priced.items()}}), indent=2))
        return _code(priced[Path(options.file).name])
    print("\n".join(explain(plan)))
    print_table(console(), Table("Tables", ("table", "where"), tuple((fact.table.name, fact.where) for fact in table_facts(plan))))
    cluster = experiment.cluster
    batch = counted(experiment.batch_size, "sample")
    note = f"Simulated: an iteration on {cluster.name}, {batch} a rank. Bytes are those of the busiest rank."
    note = " ".join([note, *(f"{reason}." for reason in priced.reasons())])
    print_table(console(), Table("Cost", ("", *priced), priced.rows(), note, tuple(priced)))
    return _code(priced[Path(options.file).name])
