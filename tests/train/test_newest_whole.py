"""The newest checkpoint that is whole and this run's: what two ranks choose, set aside and say."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.train.checkpoint import save, whole
from recsys_lab.train.newest_whole import newest_whole
from tests.ranks import run_ranks


def chosen(folder: Path) -> str:
    try:
        found = newest_whole(folder, "run", True, True)
    except UserError as error:
        return str(error)
    return "none" if found is None else found.name


def cases(folder: Path) -> list[str]:
    """What each case chooses, one after the other."""

    def write(name: str, run: str = "run") -> Path:
        path = folder / "checkpoints" / name
        save(path, [whole(f"a.{dist.get_rank()}", torch.arange(100.0))], {"x": 1}, dist.get_rank(), dist.barrier, run)
        return path

    def by_first(change: bool, path: Path) -> None:
        if change and dist.get_rank() == 0:
            path.write_bytes(path.read_bytes()[:-4])
        dist.barrier()

    outcomes = [chosen(folder)]
    write("step=2"), write("step=4"), write("step=6", "another"), by_first(True, write("step=8") / "rank_1.safetensors")
    outcomes += [chosen(folder), chosen(folder)]
    by_first(True, write("best") / "trainer.json")
    outcomes.append(chosen(folder))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder / "checkpoints" / "best")
    for name in ("step=2", "step=4"):
        by_first(True, folder / "checkpoints" / name / "rank_0.safetensors")
    return [*outcomes, chosen(folder)]


def test_what_ranks_choose(tmp_path: Path) -> None:
    MetricsCsv(tmp_path).append({"step": 9, "epoch": 0})
    first, second = run_ranks(cases, 1, 2, tmp_path)
    assert first == second and first[:3] == ["none", "step=4", "step=4"]
    assert "best: the checkpoint is broken: trainer.json" in first[3] and "start again" in first[3]
    assert "step=4: the checkpoint is broken: rank_0.safetensors" in first[4]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step=2", "step=4", "unusable-step=6", "unusable-step=8"]
