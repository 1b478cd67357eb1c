"""Kills runs at random moments and resumes them: none may be lost, end with other bits, or leave anything behind.

python experiments/reliability/kills.py --kills 100 --seed 1

Each run is disturbed up to five times, and then finished. Prints one JSON object.

kills: signals that met a process that still ran. A quarter of them are SIGTERM, the others SIGKILL.

lost: runs that did not resume, or did not end as they should.

other_bits: runs that ended, with other bits than an undisturbed one.

left_behind: what should be gone. Processes count 20 seconds after the signal. Files in TMPDIR, in the cache or in the run folder
count after the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.reliability.disturbed import Workspace, bits_of, finished_files, left_in, processes_of, ranks_of, write_clicks

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "model=dcn",
    "model.embedding_dim=8",
    "model.over_layers=[16,1]",
    "model.dropout=0.1",
    "trainer.max_epochs=2",
    "trainer.checkpoint_every_steps=4",
    "trainer.restore_best=true",
    "launcher.hosts=1",
    "launcher.timeout_s=60",
    "logger=none",
)
#: Two tables and a number: few, so that a run is mostly its start. `many` rows take a moment to prepare.
TABLE = ("data=table", "data.label=clicked", "data.dense=[price]", "data.min_count=1")
FEW, MANY = (*TABLE, "data.batch_size=128"), (*TABLE, "data.batch_size=2048")
#: An epoch is a few steps, and each step a checkpoint: a run goes on from the end of an epoch as often as from its middle.
SHORT_EPOCHS = (*TABLE, "data.batch_size=1024", "trainer.max_epochs=10", "trainer.checkpoint_every_steps=1")
ROWS = {"few": 3_000, "many": 60_000}
#: The users' rows do not fit: they are in a file, and the cache in front of it evicts some at each step.
IN_FILES = ("sharder=neo_4d", "sharder.memory_budget_gb=0.00028")
AT_MOST = 5
END_S = 20.0
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Kind:
    """What is run, and whom a signal meets: launcher | rank | writer (a rank, while a checkpoint is being written) | group."""

    name: str
    words: tuple[str, ...]
    victims: tuple[str, ...]
    early: bool = False  # only while data are prepared

    @property
    def sweeps(self) -> bool:
        return "-m" in self.words


KINDS = (
    Kind("launcher", (*SMALL, *FEW, "launcher.ranks_per_host=2"), ("launcher", "group")),
    Kind("rank", (*SMALL, *FEW, "launcher.ranks_per_host=2"), ("rank",)),
    Kind("writer", (*SMALL, *FEW, "launcher.ranks_per_host=2", "trainer.checkpoint_every_steps=2"), ("writer",)),
    Kind("epochs", (*SMALL, *SHORT_EPOCHS, "launcher.ranks_per_host=2"), ("rank", "group", "writer")),
    Kind("store", (*SMALL, *FEW, *IN_FILES, "launcher.ranks_per_host=2", "trainer.checkpoint_every_steps=2"), ("rank", "group", "writer")),
    Kind("sweep", ("-m", *SMALL, *FEW, "launcher.ranks_per_host=1", "seed=1,2"), ("launcher", "group", "rank")),
    Kind("data", (*SMALL, *MANY, "launcher.ranks_per_host=1"), ("launcher", "group"), early=True),
)


@dataclass
class Tally:
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, what: str, workspace: Workspace, why: str) -> None:
        self.counts[what] += 1
        print(f"{what}: {workspace.folder}: {why}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    line = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    line.add_argument("--kills", type=int, default=100)
    line.add_argument("--seed", type=int, default=1)
    line.add_argument("--kinds", nargs="+", choices=[kind.name for kind in KINDS], default=[kind.name for kind in KINDS])
    options = line.parse_args(argv)
    tally, draw = Tally(), random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        for name, rows in ROWS.items():
            write_clicks(Path(scratch) / name, rows)
        chosen = [kind for kind in KINDS if kind.name in options.kinds]
        quiet = {kind.name: Undisturbed.of(kind, Path(scratch)) for kind in chosen}
        for number, kind in enumerate(chosen * (4 * options.kills)):  # more often than can be needed
            workspace = Workspace(Path(scratch) / f"{kind.name}{number}")
            wanted = min(AT_MOST, options.kills - tally.counts["kills"])
            disturb(kind, quiet[kind.name], workspace, wanted, draw, tally)
            if tally.counts["kills"] >= options.kills:
                break
    print(json.dumps({key: tally.counts[key] for key in ("kills", "lost", "other_bits", "left_behind")}))
    return 0 if tally.counts["kills"] == options.kills and not any(tally.counts[k] for k in ("lost", "other_bits", "left_behind")) else 1


@dataclass(frozen=True)
class Undisturbed:
    seconds: float
    bits: object
    files: frozenset[str]

    @staticmethod
    def of(kind: Kind, scratch: Path) -> Undisturbed:
        workspace = Workspace(scratch / f"{kind.name}_undisturbed")
        began = time.monotonic()
        code, _, stderr = ended(start(words_of(kind, workspace), workspace))
        if code:
            raise SystemExit(f"an undisturbed run of {kind.name} ends with {code}: {stderr[-2000:]}")
        return Undisturbed(time.monotonic() - began, bits_of(workspace.folder), finished_files(workspace.folder))


def words_of(kind: Kind, workspace: Workspace) -> list[str]:
    """What begins the run in `workspace`, or goes on with it."""
    cache = workspace.cache if kind.early else workspace.folder.parent / "cache"
    clicks = [f"data.root={workspace.folder.parent / ('many' if kind.early else 'few')}", f"data.cache={cache}"]
    if kind.sweeps:
        return [*kind.words, *clicks, f"hydra.sweep.dir={workspace.folder}"]
    if (workspace.folder / "config.yaml").is_file():
        return [f"resume={workspace.folder}"]
    return [*kind.words, *clicks, f"hydra.run.dir={workspace.folder}"]


def start(words: Sequence[str], workspace: Workspace) -> subprocess.Popen[str]:
    """In a session of its own, by which its processes are known."""
    workspace.scratch.mkdir(parents=True, exist_ok=True)
    variables = os.environ | {"TMPDIR": str(workspace.scratch), "OMP_NUM_THREADS": "1"}
    variables.pop("HYDRA_FULL_ERROR", None)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([sys.executable, "run.py", *words], cwd=ROOT, env=variables, **quiet)  # type: ignore[call-overload]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def disturb(kind: Kind, quiet: Undisturbed, workspace: Workspace, wanted: int, draw: random.Random, tally: Tally) -> None:
    """Up to `wanted` kills of one run, then its end."""
    for _ in range(wanted):
        process = start(words_of(kind, workspace), workspace)
        number = signal.SIGTERM if draw.random() < 0.25 else signal.SIGKILL
        victim = draw.choice(kind.victims)
        met = _kill(process, number, victim, workspace, draw.uniform(0.0, quiet.seconds * (0.6 if kind.early else 1.0)), draw)
        try:
            code, _, stderr = ended(process)
        except subprocess.TimeoutExpired:
            tally.note("lost", workspace, f"hangs after {number.name} to {victim}")
            os.killpg(process.pid, signal.SIGKILL)
            return
        tally.counts["kills"] += met
        if left := _processes_left(process.pid):
            tally.note("left_behind", workspace, f"processes {left} after {number.name} to {victim}")
        if met and code not in _codes(number, victim):
            tally.note("lost", workspace, f"exit code {code} after {number.name} to {victim}: {stderr[-1500:]}")
        if "Traceback" in stderr:
            tally.note("lost", workspace, stderr[-1500:])
        if not met:
            break
    code, _, stderr = ended(start(words_of(kind, workspace), workspace))
    if code:
        tally.note("lost", workspace, f"does not go on, exit code {code}: {stderr[-1500:]}")
    elif (bits := bits_of(workspace.folder)) != quiet.bits:
        tally.note("other_bits", workspace, f"{bits} in place of {quiet.bits}"[:2000])
    elif left := left_in(workspace) | (finished_files(workspace.folder) ^ quiet.files):
        tally.note("left_behind", workspace, ", ".join(sorted(left)))


def _kill(
    process: subprocess.Popen[str], number: signal.Signals, victim: str, workspace: Workspace, after_s: float, draw: random.Random
) -> bool:
    """Sends the signal `after_s` from now, to a rank once there is one, to a writer once a checkpoint is begun; whether it met one."""
    until = time.monotonic() + after_s
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.005)
    while process.poll() is None:
        if victim in ("launcher", "group"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number) if victim == "launcher" else os.killpg(process.pid, number)
                return True
        writes = victim == "rank" or any(workspace.folder.glob("checkpoints/.partial-*"))
        ranks = ranks_of(process.pid) if writes else []
        if ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(ranks), number)
                return True
        time.sleep(0.001)
    return False


def _codes(number: signal.Signals, victim: str) -> tuple[int, ...]:
    """With what a run may end that a signal met: 0 where it was over by then. A signal may meet it before it listens to any."""
    if victim in ("launcher", "group"):
        return (0, -number) if number == signal.SIGKILL else (0, 143, -number)
    return (0, 4) if number == signal.SIGKILL else (0, 4, 143)  # a rank that does not train yet is lost


def _processes_left(session: int) -> list[int]:
    until = time.monotonic() + END_S
    while (left := processes_of(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


if __name__ == "__main__":
    sys.exit(main())
