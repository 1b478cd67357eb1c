"""`resume=RUN trainer.max_epochs=3`: a run that has ended trains for longer, to the same bits as one that was to from the start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.lines import SMALL, bits, line, result

RANKS = ("launcher.hosts=1", "launcher.ranks_per_host=2")
#: Rates rise over all of it, so that a step after a resume shows whether its rate is right.
LINE = ("model=dcn", *SMALL, *RANKS, "data.rows_train=2000", "optimizer.schedule.warmup_steps=60", "trainer.max_epochs=2")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("longer") / "run"
    done = line(*LINE, f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_more_epochs_are_the_same_bits_as_if_they_had_been_asked_for_at_once(ended: Path, cache: Path, tmp_path: Path) -> None:
    longer, at_once = shutil.copytree(ended, tmp_path / "longer"), tmp_path / "at_once"
    done = line(f"resume={longer}", "trainer.max_epochs=3", "trainer.checkpoint_every_steps=7", cache=cache)
    assert done.code == 0, done.err
    straight = line(*LINE, "trainer.max_epochs=3", f"hydra.run.dir={at_once}", cache=cache)
    assert straight.code == 0, straight.err
    assert bits(longer) == bits(at_once) and bits(longer)[1] == "step=24"
    assert "schedule" not in done.out and "from step 16" in done.out, done.out  # a warm-up does not depend on the number of steps
    again = line(f"resume={longer}", cache=cache)
    assert again.code == 0 and result(longer)["config_fingerprint"] != result(ended)["config_fingerprint"]


def test_what_cannot_be_longer_is_refused_and_changes_nothing(ended: Path, cache: Path) -> None:
    before = files(ended)
    for word, *parts in (
        ("trainer.max_epochs=1", "trained for longer already", "8 steps", "16 steps or more"),
        ("trainer.max_steps=3", "trainer.max_steps", "3 steps"),
        ("optimizer.schedule.warmup_steps=3", "another config"),
    ):
        done = line(f"resume={ended}", word, cache=cache)
        assert done.code == 2 and done.err.count("\n") == 1, (done.code, done.err)
        assert all(part in done.err for part in parts), done.err
    assert files(ended) == before


def test_a_run_that_a_limit_ended_in_the_middle_of_an_epoch_goes_on_there(ended: Path, cache: Path, tmp_path: Path) -> None:
    """Twice by steps in one epoch; and by time, after which what there was of the epoch has been evaluated like a whole one."""
    by_steps, by_time = tmp_path / "steps", tmp_path / "time"
    for word in ("trainer.max_steps=3", "trainer.max_steps=6", "trainer.max_steps=-1"):
        words = (f"resume={by_steps}",) if by_steps.exists() else (*LINE, f"hydra.run.dir={by_steps}")
        done = line(*words, word, cache=cache)
        assert done.code == 0, done.err
    done = line(*LINE, "trainer.max_minutes=0.0001", "trainer.log_every_steps=3", f"hydra.run.dir={by_time}", cache=cache)
    assert done.code == 0 and bits(by_time)[1] == "step=3", done.err
    done = line(f"resume={by_time}", "trainer.max_minutes=60", cache=cache)
    assert done.code == 0 and "from step 3" in done.out, done.err
    assert bits(by_steps) == bits(by_time) == bits(ended)
