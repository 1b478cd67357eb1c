"""Training on the emulated network through kills and cuts: each ends with exit code 4 and a name, and the run goes on to the same bits."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.lines import ROOT, SMALL, bits, environment, line
from tests.launchers.test_emulated import pytestmark as wants_namespaces

HOSTS, RANKS_PER_HOST = 2, 2
WORDS = (
    "model=dcn",
    "sharder=torchrec_row_wise",
    "launcher=emulated",
    "cluster=emulated_4x2",
    f"cluster.hosts={HOSTS}",
    "launcher.timeout_s=10",
    *SMALL,
    "data.rows_train=30000",  # steps enough that there is one left to disturb after every fault
)
#: From the fault to exit code 4.
AT_MOST_S = 60.0
#: From a checkpoint to the fault; a checkpoint takes part of it, and so is disturbed too.
LATEST_S = 0.3
pytestmark = [wants_namespaces, pytest.mark.long, pytest.mark.timeout(2400)]


@dataclass(frozen=True)
class Fault:
    kind: str  # kill | cut
    where: int  # the rank that dies, or the host that is cut off

    @property
    def message(self) -> str:
        if self.kind == "cut":
            return f"host {self.where} ("
        return f"rank {self.where} on host {self.where // RANKS_PER_HOST} was lost (killed by SIGKILL)"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that nothing happens to, and the cache that all share."""
    folder, cache = tmp_path_factory.mktemp("undisturbed"), tmp_path_factory.mktemp("cache")
    done = line(*WORDS, f"hydra.run.dir={folder / 'run'}", cache=cache, timeout_s=600)
    assert done.code == 0, done.err
    return folder / "run", cache


@pytest.mark.parametrize(("kind", "times"), [("kill", 10), ("cut", 5)])
def test_training_survives(kind: str, times: int, undisturbed: tuple[Path, Path], tmp_path: Path) -> None:
    """In runs of five faults each, every one after further progress."""
    seed = int(os.environ.get("RECSYS_LAB_KILL_SEED", random.SystemRandom().randrange(10**6)))
    drawn = random.Random(seed)
    places = HOSTS * RANKS_PER_HOST if kind == "kill" else HOSTS
    for number in range(times // 5):
        folder = tmp_path / f"run{number}"
        for fault in range(5):
            words = [f"resume={folder}"] if fault else [*WORDS, f"hydra.run.dir={folder}"]
            # A cut of the first host cuts all others off; with two hosts nobody can say which of the two it was.
            where = drawn.randrange(places) if kind == "kill" else 1
            disturb(words, folder, undisturbed[1], Fault(kind, where), drawn.uniform(0.0, LATEST_S))
        done = line(f"resume={folder}", cache=undisturbed[1], timeout_s=600)
        assert done.code == 0, f"seed {seed}: {done.err}"
        assert bits(folder) == bits(undisturbed[0]), f"seed {seed}"


def disturb(words: list[str], folder: Path, cache: Path, fault: Fault, pause_s: float) -> None:
    """Runs `words`, does `fault` some time after the next checkpoint, and sees that all of it ends as it should."""
    before, devices = steps(folder), devices_here()
    process = subprocess.Popen(
        [sys.executable, "run.py", *words], cwd=ROOT, env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 400
    while steps(folder) <= before:
        assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
        time.sleep(0.02)
    time.sleep(pause_s)
    assert process.poll() is None, f"over before the fault: {process.communicate()[1]}"
    family = psutil.Process(process.pid).children(recursive=True)
    spaces = namespaces_of(family)
    assert len(spaces) == HOSTS + 2  # the launcher's, each host's, the switch's
    began, when = time.monotonic(), time.time()
    if fault.kind == "kill":
        os.kill(rank_process(family, fault.where), signal.SIGKILL)
    else:
        switch = sorted((p for p in family if p.name() == "cat"), key=lambda p: p.create_time())[0]
        command = ["nsenter", "-t", str(switch.pid), "-n", "ip", "link", "set", f"p{fault.where}", "down"]
        subprocess.run(command, check=True)
    _, said = process.communicate(timeout=AT_MOST_S)
    assert time.monotonic() - began < AT_MOST_S
    assert process.returncode == 4, said
    assert fault.message in said and f"python run.py resume={folder}" in said, said
    _, left = psutil.wait_procs(family, timeout=10)  # the agent ends a moment after us
    assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE]
    earlier = [p for p in psutil.process_iter(["create_time"]) if p.info["create_time"] < when]  # the kernel gives numbers again
    assert not (spaces - namespaces_of([psutil.Process()])) & namespaces_of(earlier)
    assert devices_here() == devices


def steps(folder: Path) -> int:
    """Of the last whole checkpoint."""
    return max((int(path.name.split("=")[1]) for path in (folder / "checkpoints").glob("step=*") if path.name[5:].isdigit()), default=-1)


def namespaces_of(processes: Iterable[psutil.Process]) -> set[int]:
    """The network namespaces that they are in. One without a process, a name or a mount is gone, and nothing of ours names or mounts."""
    found = set()
    for process in processes:
        with suppress(OSError):
            found.add(os.stat(f"/proc/{process.pid}/ns/net").st_ino)
    return found


def devices_here() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def rank_process(family: list[psutil.Process], rank: int) -> int:
    """Ranks are forked one after another by the agent."""
    agent = next(p for p in family if len(p.children()) == HOSTS * RANKS_PER_HOST)
    return sorted(p.pid for p in agent.children())[rank]
