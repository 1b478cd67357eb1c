"""A real torchrun that restarts its ranks after a real SIGKILL: the run goes on from its newest checkpoint, to the same bits."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from omegaconf import OmegaConf

from launchers import torchrun
from launchers.processes import listen_here
from recsys_lab.errors import Terminated, UserError
from recsys_lab.executor.recorded import register
from tests.end_to_end.lines import ROOT, SMALL, bits, environment, result
from tests.ranks import RankFailed, run_ranks

register()
WORDS = ("model=dcn", "sharder=torchrec_row_wise", "mode=train", *SMALL, "data.rows_train=30000")
STANDALONE = ("--standalone", "--nproc_per_node", "2")


def a_port() -> int:
    """Free a moment ago: torchrun takes the number of one, not the socket."""
    with listen_here(1) as listener:
        return listener.getsockname()[1]


def torchrun_of(options: tuple[str, ...], words: tuple[str, ...], cache: Path, **variables: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", *options, "run.py", *words]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment(cache) | variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def ranks_of(agent: subprocess.Popen) -> list[int]:
    """The processes of an agent's ranks, oldest first."""
    children = psutil.Process(agent.pid).children()
    return [p.pid for p in sorted(children, key=lambda p: p.create_time()) if any(word.endswith("run.py") for word in p.cmdline())]


def wait_for_step(folder: Path, least: int, agent: subprocess.Popen) -> None:
    until = time.monotonic() + 300
    while not any(int(path.name[5:]) >= least for path in folder.glob("checkpoints/step=*") if path.name[5:].isdigit()):
        assert agent.poll() is None and time.monotonic() < until, agent.communicate()[1]
        time.sleep(0.02)


def join_late() -> None:
    if dist.get_rank() == 1:
        time.sleep(6)
    dist.all_reduce(torch.ones(1))


def join_for_a_second(folder: str) -> None:
    torchrun.join(join_late, {}, Path(folder), hosts=1, ranks_per_host=2, timeout_s=1.0)


def test_ranks_that_have_met_wait_as_long_as_the_config_says(tmp_path: Path) -> None:
    """They meet before the config is read, to hear from the first which one it is."""
    with pytest.raises(RankFailed, match="RankLost: rank 0 on host 0 lost its peers"):
        run_ranks(join_for_a_second, 1, 2, str(tmp_path), backend="recorded", timeout_s=60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_rank_that_waits_for_its_master_ends_on_sigterm(tmp_path: Path) -> None:
    """The masters take the ranks' calls. Then one goes away, and one says nothing."""
    masters = [socket.create_server(("127.0.0.1", 0)) for _ in ("gone", "silent")]
    ranks = [_rank_of(master.getsockname()[1], tmp_path / str(at), tmp_path / "cache") for at, master in enumerate(masters)]
    try:
        calls = []
        for master in masters:
            master.settimeout(300)
            calls.append(master.accept()[0])
        for gone in (calls[0], masters[0]):
            gone.close()
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        for rank in ranks:
            _, said = rank.communicate(timeout=20)
            assert rank.returncode == Terminated.exit_code and "ended by SIGTERM" in said, said
    finally:
        for rank in ranks:
            rank.kill()
        for open_socket in (*calls, *masters):
            open_socket.close()


def _rank_of(port: int, run: Path, cache: Path) -> subprocess.Popen:
    """The second of two, whose master is at `port` of this machine."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "run.py", "model=dcn", "mode=train", *SMALL, f"hydra.run.dir={run}"]
    return subprocess.Popen(command, cwd=ROOT, env=environment(cache) | variables, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_restarts_go_on_to_the_same_bits(tmp_path: Path) -> None:
    """The folder is not named by the user, and so has the time of the first attempt in its name."""
    quiet = torchrun_of(STANDALONE, (*WORDS, f"hydra.run.dir={tmp_path / 'quiet'}"), tmp_path / "cache")
    assert quiet.wait(400) == 0, quiet.communicate()[1]
    named = f"hydra.run.dir={tmp_path}/killed_${{now:%H-%M-%S-%f}}"
    agent = torchrun_of(("--max-restarts", "2", *STANDALONE), (*WORDS, named), tmp_path / "cache")
    until = time.monotonic() + 200
    while not (folders := list(tmp_path.glob("killed_*"))):
        assert agent.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    for victim, least in ((1, 10), (0, 80)):
        wait_for_step(folders[0], least, agent)
        os.kill(ranks_of(agent)[victim], signal.SIGKILL)
    _, said = agent.communicate(timeout=400)
    assert agent.returncode == 0, said
    assert list(tmp_path.glob("killed_*")) == folders
    assert result(folders[0])["status"] == "completed"
    assert bits(folders[0]) == bits(tmp_path / "quiet")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_host_that_joins_later_trains_on_with_the_others(tmp_path: Path) -> None:
    """With a store an attempt, as docs/launchers.md says: in a shared one torch's joining agent waits for an address in vain."""
    elastic = ("--nnodes", "1:2", "--nproc_per_node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{a_port()}")
    elastic = (*elastic, "--rdzv-id", "joined", "--rdzv-conf", "last_call_timeout=3")
    words = (*WORDS, "data.rows_train=60000", f"hydra.run.dir={tmp_path / 'run'}")
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", torchrun.GOES_ON: "1"}
    first = torchrun_of(elastic, words, tmp_path / "cache", **variables)
    wait_for_step(tmp_path / "run", 5, first)
    second = torchrun_of(elastic, words, tmp_path / "cache", **variables)
    for agent in (first, second):
        _, said = agent.communicate(timeout=400)
        assert agent.returncode == 0, said
    made = result(tmp_path / "run")
    assert made["status"] == "completed" and (made["measured"]["hosts"], made["measured"]["ranks_per_host"]) == (2, 1)
    with open(tmp_path / "run" / "metrics.csv") as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row["train_loss"]]
    assert steps == sorted(set(steps))


def test_what_goes_on_is_what_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        kept: dict[str, bytes] = {}

        def check(self, keys: list[str]) -> bool:
            return set(keys) <= set(self.kept)

        def get(self, key: str) -> bytes:
            return self.kept[key]

    monkeypatch.setattr(torchrun, "_store", Store)
    assert torchrun._going_on(["model=dcn"]) == ["model=dcn"]
    Store.kept = {torchrun.FOLDER: str(tmp_path).encode()}
    assert torchrun._going_on(["model=dcn"]) == ["model=dcn", f"hydra.run.dir='{tmp_path}'"]
    assert torchrun._going_on(["-m", "seed=1,2"]) == ["-m", "seed=1,2", f"hydra.sweep.dir='{tmp_path}'"]
    (tmp_path / "config.yaml").touch()
    assert torchrun._going_on(["model=dcn"]) == [f"resume={tmp_path}"]
    Store.kept = {}
    monkeypatch.setenv(torchrun.GOES_ON, "1")
    assert torchrun._going_on([f"hydra.run.dir='{tmp_path}'"]) == [f"resume={tmp_path}"]
    theirs = ["hydra.searchpath=[file:///x]", "--config-dir", "conf", "data._target_=shop.clicks"]
    assert set(torchrun._going_on(["model=dcn", *theirs, f"hydra.run.dir='{tmp_path}'"])) == {*theirs, f"resume={tmp_path}"}


def test_a_later_attempt_goes_on_with_no_other_run_than_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody says that the run in the folder is this one: an attempt that was refused because of it is started anew as well."""
    for name, value in {"TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    named = ["model=dlrm", "overwrite=true", f"hydra.run.dir={tmp_path}"]
    assert torchrun._going_on(named) == [*named, f"hydra.run.dir='{tmp_path}'"]
    (tmp_path / "config.yaml").touch()
    assert torchrun._going_on(named) == ["model=dlrm", f"resume={tmp_path}"]


def test_a_store_that_agents_keep_to_themselves_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there only once ranks have a process group: looking before that waited for minutes."""

    def never() -> None:
        raise AssertionError("nobody answers")

    monkeypatch.setattr(torchrun, "_store", never)
    for name, value in {"TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_RUN_ID": "7", "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    named = [f"hydra.run.dir='{tmp_path}'"]
    torchrun.remember(tmp_path)
    assert torchrun._going_on(named) == named
    monkeypatch.setenv(torchrun.GOES_ON, "1")
    (tmp_path / "config.yaml").touch()
    assert torchrun._going_on(named) == [f"resume={tmp_path}"]


def test_a_run_that_goes_on_has_as_many_ranks_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create(
        {
            "launcher": {"_target_": "launchers.local.launch", "hosts": 2, "ranks_per_host": 2, "threads_per_rank": 1, "timeout_s": 9.0},
            "choices": {"launcher": "local"},
            "resume": "runs/one",
        }
    )
    monkeypatch.delenv("RANK", raising=False)
    assert torchrun.as_started(config) is config
    for name, value in {"RANK": "0", "WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    started = torchrun.as_started(config)
    assert dict(started.launcher) == {
        "_target_": "launchers.torchrun.join",
        "hosts": 3,
        "ranks_per_host": 4,
        "threads_per_rank": 1,
        "timeout_s": 9.0,
    }
    assert started.choices.launcher == "torchrun" and config.choices.launcher == "local"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK: not a variable of torchrun's; given x; allowed: a whole number, 0 or more; unset RANK"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE: not a variable of torchrun's; given 0; allowed: a whole number, 1 or more"),
        ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE: not a variable of torchrun's; given 0"),
        ({"SLURM_NTASKS": ""}, "SLURM_NTASKS: not a variable of torchrun's; given an empty word"),
        ({"RANK": "9" * 20}, "RANK: not a variable of torchrun's"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK: variables of torchrun's that do not fit each other; given WORLD_SIZE=2, RANK=2"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR: a variable of torchrun's is missing"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}, "MASTER_PORT: a variable of torchrun's is missing"),
    ],
)
def test_variables_that_say_no_rank(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str) -> None:
    for name in (*torchrun.LEAST, "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    torchrun.check_variables()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"^{re.escape(says)}"):
        torchrun.check_variables()
