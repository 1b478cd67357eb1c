"""`python -m recsys_lab ablation SWEEP`: a sweep's table, rewritten: another baseline, or after a kill."""

from __future__ import annotations

from typing import get_args

from recsys_lab.base.arguments import parser
from recsys_lab.errors import UserError
from recsys_lab.sweeps.ablation import write_ablation
from recsys_lab.sweeps.table import LEVEL, Cell
from recsys_lab.sweeps.text import print_ablation


def main(argv: list[str]) -> int:
    """Writes and prints the table of the sweep's folder that `argv` names. UserError after it where a job's files are broken."""
    line = parser("ablation", "The ablation table of a sweep, rewritten: with another baseline, or of a sweep that was killed.")
    line.add_argument("sweep", help="the folder of a sweep: its hydra.sweep.dir")
    line.add_argument("--baseline", help="the row to compare with, such as model=dlrm,sharder=torchrec; model: one for each; none: nothing")
    line.add_argument("--level", type=float, default=LEVEL, help="the chance of any false claim in the table, at most (0.05)")
    line.add_argument("--cell", choices=get_args(Cell), default="median", help="what a cell has of its seeds (median)")
    options = line.parse_args(argv)
    if not 0 < options.level < 1:
        raise UserError("not a probability", where="--level", given=options.level, allowed="between 0 and 1")
    ablation = write_ablation(options.sweep, options.baseline, options.level, cell=options.cell)
    print_ablation(ablation)
    if broken := [job.broken for row in ablation.rows for job in row.jobs if job.broken]:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise UserError(f"the table lacks a job{more}: {broken[0]}", remedy="the sweep's own command runs it again")
    return 0
