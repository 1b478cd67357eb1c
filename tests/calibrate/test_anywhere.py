"""Ranks that somebody else started are measured where they are: torchrun's, and those of srun on a real SLURM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.calibrate.runs import brief
from tests.end_to_end.lines import ROOT, environment
from tests.launchers import one_machine_slurm

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
WORDS = ("-m", "recsys_lab", "calibrate", "--name", "there", "data=synthetic_brief")


def calibrated(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    """Runs `command`; what it wrote is a cluster of one host of two ranks with its profile, and can be planned for at another size."""
    done = subprocess.run(
        [*command, "--out", str(folder)], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"python run.py mode=simulate hydra.searchpath=[file://{folder}] cluster=there cluster.hosts=8" in done.stdout
    assert done.stdout.count("written: ") == 1 and done.stderr.count("1 host x 2 ranks") == 1  # once, not a line a rank
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.yaml")} == {"cluster/there.yaml", "profile/there.yaml"}
    words = [f"hydra.searchpath=[file://{folder}]", "cluster=there"]
    small, large = brief(words), brief([*words, "cluster.hosts=16"])
    assert (small.cluster.hosts, small.cluster.ranks_per_host, large.cluster.world_size) == (1, 2, 32)
    assert small.cluster.device == large.cluster.device and small.cluster.intra_host == large.cluster.intra_host
    assert len(small.profile.fitted_on) == 6 and small.profile.fitted_systems == {small.cluster.device.name: 1}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_under_torchrun(tmp_path: Path) -> None:
    calibrated([sys.executable, *TORCHRUN, *WORDS], tmp_path / "conf", environment(tmp_path / "cache"))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not one_machine_slurm.available(), reason="wants root and SLURM: apt install slurmctld slurmd slurm-client munge")
def test_under_srun(tmp_path: Path) -> None:
    with one_machine_slurm.slurm(tmp_path / "slurm", cpus=2) as variables:
        command = ["srun", "--ntasks=2", "--cpus-per-task=1", sys.executable, *WORDS, "launcher=slurm"]
        calibrated(command, tmp_path / "conf", variables | environment(tmp_path / "cache") | {"SLURM_CONF": variables["SLURM_CONF"]})
