"""How many small wrong changes to the pure rooms their tests notice.

    .venv/bin/python -m pip install --target .mutation cosmic-ray
    .venv/bin/python experiments/reliability/mutants.py --sample 400 --seed 1

Draws a sample of all mutations (`mutations.py`), each as likely as any other. For each it runs the tests of its room that call the
changed function, the quickest first, until one fails. Prints one JSON object; `score`: killed over those that are not equivalent.
Survivors go to stderr. What is equivalent stands in equivalent.yaml, with a reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[2] / ".mutation"))  # last: what both have is the environment's

from experiments.reliability.forked import GRACE_S, Called, Outcome, called, preload, tried
from experiments.reliability.mutations import Change, Mutation, change_of, mutations_of

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
#: What is not asked: files that take whole configs or trainings, and tests of more CPU seconds while their calls are counted.
SLOW, QUICK_S = ("test_published.py", "test_rank.py", "test_pipelined.py", "test_dmt_line.py", "test_experiment.py"), 4.0
#: And those whose work is done in other processes, which do not have the change.
ELSEWHERE = ("test_volume.py", "test_volume_rows.py", "test_volume_towers.py")
#: CPU seconds of a test that is asked of every change outside of functions.
SHORT_S = 0.1
#: And where those are that look at all files of a room.
OF_THE_HOUSE = "tests/architecture/"


Mutated = tuple[str, str, str, str]  # file, function, the line before and after


@dataclass(frozen=True)
class Room:
    """`code`: files or folders, those of `execute` and torch left out. `tests`: of the room."""

    code: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self) -> Iterator[str]:
        for name in self.code:
            path = ROOT / name
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                if "execute" not in file.relative_to(ROOT).with_suffix("").parts:
                    yield str(file.relative_to(ROOT))


def _room(name: str) -> Room:
    frozen = f"tests/architecture/test_values.py::test_every_dataclass_is_frozen[{name}]"
    return Room((f"recsys_lab/{name}",), (*_tests_of(name), frozen))


def _tests_of(name: str) -> Iterator[str]:
    for path in sorted((ROOT / "tests" / name).glob("test_*.py")):
        if path.name not in (*SLOW, *ELSEWHERE):
            yield str(path.relative_to(ROOT))


_PLAN = tuple(_tests_of("plan"))
_REFERENCE = "tests/schemes/test_every_scheme.py::test_reference_plans_are_valid_and_explained"
_STATISTICS = ("tests/sweeps/test_statistics.py", "tests/sweeps/test_comparisons.py")
ROOMS = {
    "cluster": _room("cluster"),
    "tables": _room("tables"),
    "statistics": Room(("recsys_lab/sweeps/statistics.py",), _STATISTICS),
    "plan": _room("plan"),
    "simulate": _room("simulate"),
    "schemes": Room(("recsys_lab/schemes",), (*_PLAN, _REFERENCE)),
    "config": _room("config"),
    "sharders": _room("sharders"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=400, help="mutations, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--room", choices=ROOMS, action="append", help="only this room, or these; all of them otherwise")
    parser.add_argument("--log", type=Path, help="a line of JSON for each mutation tried, written as it is")
    parser.add_argument("--calls", type=Path, help="a folder: which tests call what is kept there, and not counted again")
    parser.add_argument("--again", type=Path, help="the log of an earlier run: what it killed is not tried again")
    given = parser.parse_args()
    os.chdir(ROOT)
    everything = [(room, m) for room in given.room or ROOMS for file in ROOMS[room].files() for m in mutations_of(ROOT, file)]
    drawn = sorted(random.Random(given.seed).sample(range(len(everything)), min(given.sample, len(everything))))
    counts: dict[str, Counter] = {}
    for room in dict.fromkeys(everything[number][0] for number in drawn):
        mutations = [everything[number][1] for number in drawn if everything[number][0] == room]
        counts[room] = Counter(_of_room(room, mutations, given))
    print(json.dumps(_summary(len(everything), counts), indent=1))


def _of_room(room: str, mutations: list[Mutation], given: argparse.Namespace) -> Iterator[str]:
    """The outcome of each."""
    tests = ROOMS[room].tests
    known = {place: Outcome("equivalent", reason) for place, reason in equivalent().items()} | _killed(given.again)
    of_room: Called | None = None
    for mutation in mutations:
        change = change_of(ROOT, mutation)
        outcome = known.get((mutation.file, mutation.function, change.before, change.after))
        if outcome is None:
            of_room = of_room or _watched(tests, given.calls / f"{room}.json" if given.calls else None)
            outcome = _outcome(mutation, change, of_room)
        if outcome.name == "survived":
            print(
                f"survived: {mutation.file}:{mutation.line} {mutation.function}\n  - {change.before}\n  + {change.after}", file=sys.stderr
            )
        if given.log:
            line = {"room": room, **vars(mutation), "before": change.before, "after": change.after, **vars(outcome)}
            with given.log.open("a") as out:
                out.write(json.dumps(line) + "\n")
        yield outcome.name


def _watched(tests: tuple[str, ...], kept: Path | None) -> Called:
    found = called(ROOT, tests, kept)
    preload(found.modules)
    return found


def _killed(path: Path | None) -> dict[Mutated, Outcome]:
    """What an earlier run killed."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path else []
    killed = [line for line in lines if line["name"] in ("killed", "timed_out")]
    return {(line["file"], line["function"], line["before"], line["after"]): Outcome(line["name"], line["by"]) for line in killed}


def _outcome(mutation: Mutation, change: Change, of_room: Called) -> Outcome:
    """Of a function those tests are asked that call it, of what runs at import those that call anything of its file, and short ones."""
    place, seconds = (mutation.file, mutation.function), of_room.seconds
    of_file: set[str] = set().union(*(names for (file, _), names in of_room.tests_of.items() if file == mutation.file))
    short = {name for name in seconds if seconds[name] <= SHORT_S or name.startswith(OF_THE_HOUSE)}  # they may call nothing of a file
    names = of_room.tests_of.get(place, set()) if mutation.function else of_file | short
    names = {name for name in names if seconds[name] <= QUICK_S}
    if not names:
        return Outcome("survived", "no quick test calls it")
    limit_s = GRACE_S + 5 * sum(seconds[name] for name in names)
    return tried(ROOT, mutation.file, change.text, sorted(names, key=lambda name: (seconds[name], name)), limit_s)


def equivalent() -> dict[Mutated, str]:
    """Why no test can notice."""
    listed: list[dict[str, Any]] = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []
    return {(one["file"], one["function"], one["before"], one["after"]): one["reason"] for one in listed}


def _summary(possible: int, counts: dict[str, Counter]) -> dict[str, Any]:
    def of(found: Counter) -> dict[str, Any]:
        killed, same = found["killed"] + found["timed_out"], found["equivalent"]
        tried = found.total() - same
        score = round(killed / tried, 3) if tried else None
        return {"mutants": found.total(), "killed": killed, "survived": found["survived"], "equivalent": same, "score": score}

    total = sum(counts.values(), Counter())
    return of(total) | {"timed_out": total["timed_out"], "possible": possible, "rooms": {room: of(found) for room, found in counts.items()}}


if __name__ == "__main__":
    main()
