"""How many calls lie between the command line and what it is for. Frames of libraries, such as Hydra and Lightning, do not count."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch.distributed as dist

import run
from launchers import agent
from recsys_lab import pipeline, planning
from recsys_lab.config.choices import composed
from recsys_lab.config.schema import resolved
from recsys_lab.errors import UserError
from recsys_lab.record.ownership import Ownership
from recsys_lab.train.job import Job
from recsys_lab.train.rank import train_here

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["data=synthetic_brief", "data.rows_train=512", "trainer.max_steps=2", "logger=none"]


class Reached(BaseException):
    """Ends a run where it was to be measured. No error, which a run would record."""


def calls_to_here() -> int:
    """From `run.main`, which is call 0, to the function that the caller of this stands in for."""
    ours = [frame for frame in traceback.extract_stack()[:-2] if is_ours(Path(frame.filename))]
    names = [(Path(frame.filename).name, frame.name) for frame in ours]
    return len(ours) - names.index(("run.py", "main"))


def is_ours(file: Path) -> bool:
    return any(file.is_relative_to(ROOT / part) for part in ("run.py", "recsys_lab", "launchers"))


def depth_of(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, folder: Path, *words: str) -> int:
    """How many calls below `run.main` the function `name` of `owner` is, in a run of `words`."""
    depths = []

    def stand_in(*given: object, **more: object) -> None:
        depths.append(calls_to_here())
        raise Reached

    monkeypatch.setattr(owner, name, stand_in)
    with pytest.raises(Reached):
        run.main([*WORDS, f"hydra.run.dir={folder}", *words])
    return depths[0]


def test_the_simulator_is_five_calls_away_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert depth_of(monkeypatch, planning, "simulate", tmp_path, "mode=simulate") <= 5


@pytest.mark.parametrize("sharder", sorted(path.stem for path in (ROOT / "conf" / "sharder").glob("*.yaml")))
def test_every_planner_is_five_calls_away_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sharder: str) -> None:
    kind = type(resolved(composed("sharder", sharder).planner))
    assert depth_of(monkeypatch, kind, "plan", tmp_path, "mode=plan", f"sharder={sharder}") <= 5


def test_a_plan_for_this_machine_is_five_calls_away_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kind = type(resolved(composed("sharder", "torchrec_row_wise").planner))
    plan, depths = kind.plan, []

    def stand_in(self: object, inputs: object) -> object:
        depths.append(calls_to_here())
        if len(depths) == 2:
            raise Reached
        return plan(self, inputs)

    monkeypatch.setattr(kind, "plan", stand_in)
    with pytest.raises(Reached):
        run.main([*WORDS, f"hydra.run.dir={tmp_path}", "sharder=torchrec_row_wise", "cluster=h100x64"])
    assert depths[1] <= 5


def train_until_fit(job: Job) -> None:
    """What a rank does in place of `train`: it leaves the number of calls from its own first one to `Trainer.fit`, and ends."""

    def fit(*given: object, **more: object) -> None:
        ours = [frame.name for frame in traceback.extract_stack()[:-1] if is_ours(Path(frame.filename))]
        own = ours[ours.index("_rank_main") :]  # below it lies the stack of the process that a rank is forked from
        (job.folder / f"fit_{dist.get_rank()}").write_text(str(len(own)))
        raise UserError("reached")

    pl.Trainer.fit = fit  # type: ignore[method-assign]
    train_here(job)


@pytest.mark.timeout(240)
def test_training_is_seven_calls_away_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of the launcher up to where it starts a rank, and those of the rank."""
    starts, start = [], agent.run

    def stand_in(*given: Any, **more: Any) -> Any:
        starts.append(calls_to_here())
        return start(*given, **more)

    monkeypatch.setattr(agent, "run", stand_in)
    monkeypatch.setattr(pipeline, "train", train_until_fit)
    words = ["mode=train", "trainer.checkpoint_every_steps=0", "launcher.hosts=1", "launcher.ranks_per_host=2"]
    monkeypatch.setattr(Ownership, "withdraw", lambda self: None)  # which would remove what the ranks left
    assert run.main([*WORDS, f"hydra.run.dir={tmp_path}", *words]) == 2
    for rank in range(2):
        assert starts[0] + int((tmp_path / f"fit_{rank}").read_text()) + 1 <= 7
