"""`python -m recsys_lab compare RUN RUN ...`: runs side by side: what differs in config and in figures."""

from __future__ import annotations

import json

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import plain
from recsys_lab.errors import UserError
from recsys_lab.record.run_folder import read_run
from recsys_lab.report.comparison import config_differences, config_table, figure_values, figures_table, runs_table
from recsys_lab.report.terminal import console, print_table


def main(argv: list[str]) -> int:
    """Prints the runs in the folders that `argv` names, side by side."""
    line = parser("compare", "Runs side by side: the config keys that differ, and every figure. Ratios are to the first run.")
    line.add_argument("runs", nargs="+", metavar="RUN", help="run folders, two or more")
    line.add_argument("--json", action="store_true", help="print the same as JSON")
    options = line.parse_args(argv)
    if len(options.runs) < 2:
        raise UserError(
            "one run has nothing to be compared with", where="python -m recsys_lab compare", given=options.runs[0], allowed="two or more"
        )
    runs = [read_run(folder) for folder in options.runs]
    if options.json:
        folders = [str(run.folder) for run in runs]
        print(json.dumps(plain({"runs": folders, "config": config_differences(runs), "figures": figure_values(runs)}), indent=2))
        return 0
    for table in (runs_table(runs), config_table(runs), figures_table(runs)):
        print_table(console(), table)
    return 0
