"""A sweep on a real SLURM of one node: every run a job, every task a rank, and the ablation table at the end. A script for sbatch."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launchers import slurm as launcher
from launchers import torchrun
from recsys_lab.base.files import override_of
from recsys_lab.base.schema import checked, schema_of
from recsys_lab.errors import Terminated, UserError
from tests.end_to_end.lines import ROOT, SMALL, environment, killed, line, result
from tests.launchers import one_machine_slurm
from tests.launchers.test_torchrun import a_port


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not one_machine_slurm.available(), reason="wants root and SLURM: apt install slurmctld slurmd slurm-client munge")
def test_a_sweep_of_four_ends_with_its_table(tmp_path: Path) -> None:
    words = ("-m", "launcher=slurm", "model=dlrm,dcn", "seed=1,2", *SMALL)
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
    scripts = [path.read_text() for path in (tmp_path / "sweep" / ".submitit").rglob("*submission*.sh")]
    assert scripts and all("#SBATCH --array=0-3%1" in script for script in scripts)  # one at a time, as launcher.jobs_at_once says


def test_outside_of_a_job_it_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UserError, match="slurm without -m.*add -m.*launcher.dry_run=true"):
        launcher.join(print, {}, tmp_path, hosts=1, ranks_per_host=2)


def test_a_task_of_submitits_ends_on_sigterm_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit's own handler takes no notice of the signal."""
    codes: list[int] = []
    monkeypatch.setattr(torchrun, "leave", codes.append)
    for name, value in {"SUBMITIT_EXECUTOR": "slurm", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with launcher.task():
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("it goes on")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert codes == [Terminated.exit_code]


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


def test_other_options_of_sbatch_and_ports_that_jobs_do_not_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    options = {"qos": "high", "exclusive": True, "requeue": False, "comment": "a 'b'"}
    asked, commands = script_of(tmp_path / "run", hosts=2, ranks_per_host=2, cpus_per_rank=3, sbatch=options)
    assert (asked["qos"], asked["exclusive"], shlex.split(asked["comment"])) == ("high", "", ["a 'b'"]) and "array" not in asked
    head = f"{commands.partition('exec srun')[0]}echo $PORT $SRUN_CPUS_PER_TASK"
    given = {"SLURM_CPUS_PER_TASK": asked["cpus-per-task"], "SLURM_JOB_ID": "1234567", "SLURM_JOB_NODELIST": "n[0-1]"}
    said = subprocess.run(["bash", "-c", head], env=os.environ | given, capture_output=True, text=True, check=False)
    assert said.stdout == "24567 6\n", said.stderr
    with pytest.raises(UserError, match="launcher.sbatch"):
        checked({"hosts": 1, "ranks_per_host": 1, "sbatch": {"qos": "a\n#SBATCH --x"}}, schema_of(launcher.join), "launcher")


def test_jobs_of_a_sweep_are_one_array_that_runs_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    (sweep := tmp_path / "my sweep").mkdir()
    (sweep / "sweep.json").touch()
    for job in ("0", "1", "10"):
        script_of(sweep / job, hosts=8, ranks_per_host=8)
    text = (sweep / "slurm.sh").read_text()
    assert "\n#SBATCH --array=0,1,10%1\n" in text and "/logs/slurm_%A_%a.txt" in text and (sweep / "logs").is_dir()
    words = text[text.rindex("torchrun run.py ") :]
    said = subprocess.run(
        ["bash", "-c", f"torchrun() {{ echo $2; }}; {words}"], env={"SLURM_ARRAY_TASK_ID": "10"}, capture_output=True, check=True
    )
    assert said.stdout.decode().strip() == override_of("resume", sweep / "10")
    script_of(sweep / "11", hosts=8, ranks_per_host=8, jobs_at_once=2)
    assert "\n#SBATCH --array=0,1,10,11%2\n" in (sweep / "slurm.sh").read_text()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sweeps_scripts_are_written_without_sbatch(tmp_path: Path) -> None:
    words = ("-m", "launcher=slurm", "launcher.dry_run=true", "launcher.hosts=8", "launcher.ranks_per_host=8", "cluster=h100x64")
    words = (*words, "model=dlrm,dcn", *SMALL, f"hydra.sweep.dir={tmp_path / 'sweep'}")
    done = line(*words, cache=tmp_path / "cache")
    assert done.code == 0 and f"sbatch {tmp_path / 'sweep' / 'slurm.sh'}" in done.out, done.err
    assert "--array=0,1%1" in (tmp_path / "sweep" / "slurm.sh").read_text()
    assert "--gpus-per-node=8" in (tmp_path / "sweep" / "1" / "slurm.sh").read_text()


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
    there = {
        "SLURM_NNODES": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[0-1]",
        "SLURMD_NODENAME": "127.0.0.1",
        "SLURM_CPUS_PER_TASK": "1",
    }
    # the script puts the checkout's environment first
    variables = environment(cache) | there | {"PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", run / "slurm.sh"], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    record = result(run)
    assert record["status"] == "completed" and (record["measured"]["hosts"], record["measured"]["world_size"]) == (2, 2)
