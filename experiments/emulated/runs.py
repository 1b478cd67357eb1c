"""Trainings of `run.py` on the emulated network, in turns, so that a change of the machine's speed meets all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.emulated.comparisons import Comparison
from recsys_lab.errors import UserError
from recsys_lab.executor.times import union_ms
from recsys_lab.train.transfer import DENSE

#: By number of hosts: {words, figures}, what `experiments.emulated.calibration` found.
Networks = Mapping[int, Mapping[str, Any]]
ROOT = Path(__file__).resolve().parents[2]
SHORT = ("launcher=emulated", "cluster=emulated_4x2", "launcher.timeout_s=60", "trainer.max_steps=18", "trainer.measure_steps=12")
EVERY = (
    *SHORT,
    "trainer.evaluate_every_epochs=0",
    "trainer.evaluate_train_rows=0",
    "trainer.checkpoint_every_steps=0",
    "trainer.progress_bar=false",
    "logger=none",
)


@dataclass(frozen=True)
class Ran:
    """One training: its record, and how long its embeddings' collectives take in the simulated iteration, overlaps counted once."""

    record: Mapping[str, Any]
    simulated_transfer_ms: float

    @property
    def transfer_ms(self) -> float:
        return float(self.record["measured"]["transfer_ms"]["embedding"]["transfer"])

    @property
    def under_way_ms(self) -> float:
        return float(self.record["measured"]["transfer_ms"]["embedding"]["under_way"])

    @property
    def iteration_ms(self) -> float:
        return float(self.record["measured"]["iteration_ms"]["median"])

    @property
    def examples_per_second(self) -> float:
        return float(self.record["measured"]["examples_per_second"])

    @property
    def link_bytes(self) -> float:
        """That the kernel counted on the link of a host, an iteration."""
        return float(self.record["measured"]["links"]["counted"]) / int(self.record["measured"]["hosts"])

    @property
    def counter_vs_steps(self) -> float:
        """What the kernel counted over the payload of the collectives."""
        links = self.record["measured"]["links"]
        return float(links["counted"] / links["collectives"]) if links["collectives"] else 1.0


def calibrations(comparisons: Iterable[Comparison], under: Sequence[str], file: Path | None = None) -> Networks:
    """For each number of hosts in `comparisons`, measured now, or what `recsys_lab emulated links` printed to `file`."""
    hosts = sorted({one.hosts_of(line) for one in comparisons for line in one.lines})
    if file is None:
        said = _run([*under, sys.executable, "-m", "recsys_lab", "emulated", "links", "--hosts", *map(str, hosts)])
    else:
        said = file.read_text()
    found = {int(number): network for number, network in json.loads(said).items()}
    if missing := [number for number in hosts if number not in found]:
        raise UserError(
            "a network that was not measured",
            where=f"--network {file}",
            given=f"{', '.join(map(str, found))} hosts",
            remedy=f"python -m recsys_lab emulated links --hosts {' '.join(map(str, missing))} is also needed; or leave --network out",
        )
    return found


def rounds_of(lines: Mapping[str, Sequence[str]], rounds: int, folder: Path, under: Sequence[str]) -> list[dict[str, Ran]]:
    """Each line's training, round after round. `under`: the command under which each runs."""
    return [{name: train(own, folder / f"{name}_{number}", under) for name, own in lines.items()} for number in range(rounds)]


def train(own: Sequence[str], folder: Path, under: Sequence[str]) -> Ran:
    print(f"{folder.name} ...", file=sys.stderr, flush=True)
    _run([*under, sys.executable, "run.py", *EVERY, *own, f"hydra.run.dir={folder}", "overwrite=true"])  # of an earlier call
    return Ran(json.loads((folder / "result.json").read_text()), _simulated_transfer_ms(json.loads((folder / "trace.json").read_text())))


def _simulated_transfer_ms(trace: Mapping[str, Any]) -> float:
    """Of the slowest rank."""
    events = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1 and "group" in e["args"]]
    rows = [e for e in events if not e["name"].startswith(DENSE)]
    return union_ms((e["ts"], e["ts"] + e["dur"]) for e in rows) / 1e3


def _run(command: Sequence[str]) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [""]
        raise UserError("a training of the comparison failed", where=" ".join(command), given=said[-1])
    return done.stdout
