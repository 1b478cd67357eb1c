"""A sweep on a real SLURM of one node: every run a job, every task a rank, and the ablation table at the end. A script for sbatch."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launchers import slurm as launcher
from recsys_lab.errors import UserError
from tests.end_to_end.lines import ROOT, SMALL, environment, killed, line, result
from tests.launchers import one_machine_slurm
from tests.launchers.test_torchrun import a_port


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not one_machine_slurm.available(), reason="wants root and SLURM: apt install slurmctld slurmd slurm-client munge")
def test_a_sweep_of_four_ends_with_its_table(tmp_path: Path) -> None:
    words = ("-m", "launcher=slurm", "model=dlrm,dcn", "seed=1,2", *SMALL, "hydra.launcher.array_parallelism=1")
    with one_machine_slurm.slurm(tmp_path / "slurm", cpus=2) as environment:
        done = subprocess.run(
            [sys.executable, "run.py", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert not one_machine_slurm.steps_of(tmp_path / "slurm")
    assert done.returncode == 0, done.stderr[-3000:]
    records = [json.loads((tmp_path / "sweep" / str(job) / "result.json").read_text()) for job in range(4)]
    assert [(r["status"], r["choices"]["launcher"], r["measured"]["world_size"]) for r in records] == [("completed", "slurm", 2)] * 4
    table = (tmp_path / "sweep" / "ablation.md").read_text()
    assert "| dlrm | 2 |" in table and "| dcn | 2 |" in table and "failed" not in table


def test_outside_of_a_job_it_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match="slurm without -m.*add -m.*launcher.dry_run=true"):
        launcher.join(print, {}, tmp_path, hosts=1, ranks_per_host=2)


def script_of(folder: Path, **options: Any) -> tuple[dict[str, str], str]:
    """What sbatch reads of the script of a run in `folder`, and what bash does."""
    folder.mkdir()
    assert launcher.join(print, {}, folder, dry_run=True, **options) is None
    path = folder / "slurm.sh"
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    lines = path.read_text().splitlines()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", "\n".join(lines), re.MULTILINE))
    return asked, "\n".join(line for line in lines if not line.startswith("#"))


def test_a_script_asks_for_what_its_keys_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    keys = {"partition": "gpu", "account": "ads", "minutes": 90, "cpus_per_rank": 8, "host_memory_gb": 512, "interface": "ib0"}
    asked, commands = script_of(tmp_path / "run 1", hosts=8, ranks_per_host=4, device_kind="cuda", **keys)
    sizes = {"nodes": "8", "ntasks-per-node": "1", "cpus-per-task": "32", "gpus-per-node": "4", "mem": "512G", "time": "90"}
    assert asked.items() >= (sizes | {"partition": "gpu", "account": "ads", "requeue": "", "job-name": "run-1"}).items()
    assert asked["output"] == f"'{tmp_path}/run 1/logs/slurm_%j.txt'" and (tmp_path / "run 1" / "logs").is_dir()
    assert "--nproc-per-node=4" in commands and "NCCL_SOCKET_IFNAME=ib0" in commands
    assert shlex.split(commands)[-1] == f"resume='{tmp_path}/run 1'"
    bare, commands = script_of(tmp_path / "bare", hosts=1, ranks_per_host=2)
    assert not {"gpus-per-node", "mem", "partition", "account"} & bare.keys() and "IFNAME" not in commands


#: Stands for srun: the command on each node, as far as the script's environment tells nodes apart.
SRUN = """#!/bin/bash
shift
for node in 0 1; do SLURM_NODEID=$node "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_that_was_killed_here_goes_on_on_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes are this machine."""
    run, tools, cache = tmp_path / "run", tmp_path / "tools", tmp_path / "cache"
    words = (*SMALL, "launcher.hosts=1", "launcher.ranks_per_host=1", f"hydra.run.dir={run}")
    killed(*words, cache=cache, when=lambda: any((run / "checkpoints").glob("step=*")), pause_s=0.1)
    assert not (run / "result.json").exists()
    nodes = ("launcher=slurm", "launcher.dry_run=true", "launcher.hosts=2", "launcher.ranks_per_host=1", f"launcher.port={a_port()}")
    done = line(f"resume={run}", *nodes, cache=cache)
    assert done.code == 0 and f"sbatch {run / 'slurm.sh'}" in done.out, done.err
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/bash\necho 127.0.0.1\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    there = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]", "SLURMD_NODENAME": "127.0.0.1"}
    # the script puts the checkout's environment first
    variables = environment(cache) | there | {"PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", run / "slurm.sh"], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    record = result(run)
    assert record["status"] == "completed" and (record["measured"]["hosts"], record["measured"]["world_size"]) == (2, 2)
