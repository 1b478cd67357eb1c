"""`python -m recsys_lab show RUN`: a run in the terminal: figures, plan, iteration, config."""

from __future__ import annotations

import json

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import read_text
from recsys_lab.record.run_folder import read_run
from recsys_lab.report.show import print_plan, print_run
from recsys_lab.report.terminal import console


def main(argv: list[str]) -> int:
    """Prints the run in the folder that `argv` names. UserError for a folder that holds no finished run."""
    line = parser("show", "A run in the terminal: what report.html says, without its pictures.")
    line.add_argument("run", help="a run folder")
    line.add_argument("--plan", action="store_true", help="explain the plan in words and tables")
    line.add_argument("--json", action="store_true", help="print result.json (with --plan: plan.json)")
    options = line.parse_args(argv)
    run = read_run(options.run)
    if options.json:
        print(json.dumps(run.result if not options.plan else run.plan.to_json() if run.plan else None, indent=2))
    elif run.result.get("study"):
        print(read_text(run.folder / "table.md"), end="")
    elif options.plan:
        print_plan(run, console())
    else:
        print_run(run, console())
    return 0
