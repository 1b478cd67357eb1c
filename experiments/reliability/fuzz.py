"""Hostile cases: options out of range, broken command lines, data files, run folders and disks. Each must end as the contract says.

python experiments/reliability/fuzz.py [--part PART] [--limit N] [--seed S] [--jobs J] [--seconds T] [--verbose] [--all]

Prints how many cases ended in each of five ways:
- as one line and exit code 2;
- as another documented end that was right;
- with a traceback, exit code 1, a signal, or a refusal of several lines;
- with an exit code that is not right for the case;
- not within 60 seconds.

--verbose tells each case that was wrong. Without --all each option gets one bad value, drawn by the seed, and the ends of its range.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.reliability import (
    cases_of_columns,
    cases_of_commands,
    cases_of_data,
    cases_of_files,
    cases_of_folders,
    cases_of_options,
    cases_of_structure,
)
from experiments.reliability.hostile import VERDICTS, Case, Ended, run_all

PARTS = ("options", "structure", "data", "folders", "commands", "files", "columns")
#: Of options, unless all are asked for: one bad value each comes first.
OPTIONS = 700
WRONG = ("tracebacks", "wrongly_accepted", "over_60_s")


def main(argv: Sequence[str] | None = None) -> int:
    """0 where no case was wrong, else 1."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--part", choices=PARTS, action="append", help="only this one; can be given again")
    line.add_argument("--limit", type=int, help="so many cases, evenly from each part")
    line.add_argument("--seed", type=int, default=1, help="of the values that are drawn")
    line.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time")
    line.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    line.add_argument("--verbose", action="store_true", help="tell each case that was wrong")
    line.add_argument("--all", action="store_true", help="every bad value of every option")
    asked = line.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="fuzz_") as folder:
        ended = fuzz(Path(folder), asked)
    counts = tally(ended)
    print(json.dumps(counts))
    return 1 if any(counts[kind] for kind in WRONG) else 0


def fuzz(folder: Path, asked: argparse.Namespace) -> list[Ended]:
    """What became of the cases that are `asked` for. Where their number is limited, nothing is trained."""
    _import_everything()
    draw, parts = random.Random(asked.seed), asked.part or PARTS
    cases: list[Case] = []
    for left, part in zip(range(len(parts), 0, -1), parts):
        of_part = _cases(part, folder, draw, asked.all, asked.limit is None)
        most = len(of_part) if asked.limit is None else min(len(of_part), -(-(asked.limit - len(cases)) // left))
        cases += of_part if most == len(of_part) else draw.sample(of_part, most)
    if asked.seconds < math.inf:
        draw.shuffle(cases)  # of every part some
    ended = []
    for one in run_all(cases, folder, asked.jobs, asked.seconds):
        ended.append(one)
        if asked.verbose and one.verdict in WRONG:
            print(one, file=sys.stderr, flush=True)
    return ended


def tally(ended: Sequence[Ended]) -> dict[str, int]:
    found = Counter(one.verdict for one in ended)
    return {"cases": len(ended)} | {verdict: found[verdict] for verdict in VERDICTS}


def _cases(part: str, folder: Path, draw: random.Random, whole: bool, trains: bool) -> list[Case]:
    if part == "options":
        return list(cases_of_options.cases(draw))[: None if whole else OPTIONS]
    if part == "structure":
        return list(cases_of_structure.cases())
    if part == "data":
        return list(cases_of_data.cases())
    if part == "commands":
        return list(cases_of_commands.cases())
    if part == "columns":
        return list(cases_of_columns.cases())
    if part == "files":
        return list(cases_of_files.cases())
    return list(cases_of_folders.cases(cases_of_folders.runs(folder / "runs", trains)))


def _import_everything() -> None:
    """So that no fork has to."""
    import run  # noqa: F401
    from launchers.agent import import_libraries

    import_libraries()


if __name__ == "__main__":
    sys.exit(main())
