"""A run does not go on from a checkpoint that is not what was written: one line says which file. The newest whole one is taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.lines import Done, bits, last_checkpoint, line


@pytest.fixture
def cut_short(undisturbed: tuple[Path, Done], tmp_path: Path) -> Path:
    """As a run that was killed after its last checkpoint and before its record."""
    shutil.copytree(undisturbed[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    return tmp_path / "run"


def refused(folder: Path, cache: Path, *parts: str) -> None:
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 2, done.err
    assert done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    for part in parts:
        assert part in done.err, done.err


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_a_byte_that_has_changed(cut_short, undisturbed, cache):
    """The checkpoint before it is taken, which is said, and the run ends with the same bits. Where none is whole, it is refused."""
    newest = last_checkpoint(cut_short)
    change_a_byte(newest / "rank_2.safetensors")
    done = line(f"resume={cut_short}", cache=cache)
    assert done.code == 0, done.err
    assert "not from step=48, the checkpoint is broken: rank_2.safetensors is not what was written" in done.out, done.out
    assert "from step 45; steps 46 to 48 at least are lost and trained again" in done.out, done.out
    assert bits(cut_short) == bits(undisturbed[0])
    assert sorted(path.name for path in newest.parent.iterdir()) == ["step=45", "step=48", "unusable-step=48"]

    (cut_short / "result.json").unlink()
    change_a_byte(newest / "rank_1.safetensors")
    (newest.with_name("step=45") / "trainer.json").unlink()
    refused(cut_short, cache, "rank_1.safetensors is not what was written", f"remove {newest}")


def test_what_the_trainer_cannot_read(cut_short, cache):
    """Of a version that wrote no manifest, so that nothing but its shape is wrong."""
    newest = last_checkpoint(cut_short)
    (newest / "manifest.json").unlink()
    (newest / "trainer.json").write_text(json.dumps({"epoch": 1, "global_step": 48, "pytorch-lightning_version": "2.6.0", "loops": 5}))
    refused(cut_short, cache, "trainer.json is of another shape", str(newest))


def test_checkpoints_that_are_gone(cut_short, cache):
    shutil.rmtree(cut_short / "checkpoints")
    refused(cut_short, cache, "the checkpoints of this run are gone", "step=48", "progress.json")


def test_data_that_have_changed(cut_short, cache):
    """As if another file had lain there: of a version that wrote no manifest, so that nothing but its data differ."""
    newest = last_checkpoint(cut_short)
    (newest / "manifest.json").unlink()
    trainer = json.loads((newest / "trainer.json").read_text())
    del trainer["manifest"]
    (newest / "trainer.json").write_text(json.dumps(trainer | {"data": trainer["data"][::-1]}))
    refused(cut_short, cache, "the data are others than when this run began", str(newest))
