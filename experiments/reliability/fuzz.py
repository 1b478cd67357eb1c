"""Hostile options, files and command lines. Each must end as the contract says: a line and exit code 2, or another documented end.

python experiments/reliability/fuzz.py [--part PART] [--limit N] [--seed S] [--jobs J] [--seconds T] [--verbose] [--all]

Prints how many cases ended in each of five ways: as one line and exit code 2; as another documented end that was right; with a traceback,
exit code 1, a signal, or a refusal of several lines; with an exit code that is not right for the case; not within 60 seconds.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import math
import os
import pkgutil
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.reliability import files, lines, options
from experiments.reliability.hostile import VERDICTS, Case, Ended, run_all

PARTS = ("options", "files", "lines")
#: Of options, unless all are asked for: one bad value each comes first.
OPTIONS = 700
WRONG = ("tracebacks", "wrongly_accepted", "over_60_s")


def main(argv: Sequence[str] | None = None) -> int:
    """0 where no case was wrong, else 1."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--part", choices=PARTS, action="append", help="only this one; can be given again")
    line.add_argument("--limit", type=int, help="so many cases, evenly from each part; then nothing is trained")
    line.add_argument("--seed", type=int, default=1, help="of the values that are drawn")
    line.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time")
    line.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    line.add_argument("--verbose", action="store_true", help="tell each case that was wrong")
    line.add_argument("--all", action="store_true", help="every bad value of every option")
    args = line.parse_args(argv)
    _import_everything()
    ended = []
    with tempfile.TemporaryDirectory(prefix="fuzz_") as folder:
        for one in run_all(_cases(args, Path(folder)), Path(folder), args.jobs, args.seconds):
            ended.append(one)
            if args.verbose and one.verdict in WRONG:
                print(one, file=sys.stderr, flush=True)
    counts = tally(ended)
    print(json.dumps(counts))
    return 1 if any(counts[kind] for kind in WRONG) else 0


def tally(ended: Sequence[Ended]) -> dict[str, int]:
    verdicts = Counter(one.verdict for one in ended)
    return {"cases": len(ended)} | {verdict: verdicts[verdict] for verdict in VERDICTS}


def _cases(args: argparse.Namespace, folder: Path) -> list[Case]:
    draw, parts = random.Random(args.seed), args.part or PARTS
    cases: list[Case] = []
    for left, part in zip(range(len(parts), 0, -1), parts):
        if part == "options":
            of_part = list(itertools.islice(options.cases(draw), None if args.all else OPTIONS))
        else:
            of_part = list(lines.cases() if part == "lines" else files.cases(folder / "runs", trains=args.limit is None))
        most = len(of_part) if args.limit is None else min(len(of_part), -(-(args.limit - len(cases)) // left))
        cases += of_part if most == len(of_part) else draw.sample(of_part, most)
    if args.seconds < math.inf:
        draw.shuffle(cases)  # of every part some
    return cases


def _import_everything() -> None:
    """So that no fork has to. A driver that is opened here could not be used in a fork."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for package in (importlib.import_module("recsys_lab"), importlib.import_module("launchers")):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except ImportError:  # Triton, Ray, MLflow need not be there
                continue
    importlib.import_module("run")
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
