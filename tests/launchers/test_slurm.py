"""A sweep on a real SLURM of one node: every run a job, every task a rank, and the ablation table at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launchers import slurm as launcher
from recsys_lab.errors import UserError
from tests.end_to_end.lines import ROOT, SMALL
from tests.launchers import one_machine_slurm


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
    with pytest.raises(UserError, match="slurm without -m.*add -m"):
        launcher.join(print, {}, tmp_path, hosts=1, ranks_per_host=2)
