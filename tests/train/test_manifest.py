"""A checkpoint that is not what was written is refused, and says which file; one of another run or of another shape too."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from recsys_lab.errors import UserError
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.train import manifest
from recsys_lab.train.checkpoint import Piece, Reader, check_data, checked_trainer, save, whole
from recsys_lab.train.checkpoint_folder import BEFORE, clear_partial, latest, newest, progressed, steps

RUN = "0123456789abcdef"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "checkpoints" / "step=5"
    halves = StoredWeights.empty("split_bf16", (7, 3), torch.device("cpu"))
    halves.write(torch.randn(7, 3))
    save(
        folder, [whole("a", torch.arange(1000.0)), Piece("t", (0, 0), halves), whole("n", torch.tensor(3))], {"x": 1}, 0, lambda: None, RUN
    )
    return folder


def refused(folder: Path, *parts: str) -> None:
    with pytest.raises(UserError) as caught:
        checked_trainer(folder, RUN)
    assert "\n" not in str(caught.value)
    for part in (str(folder), *parts):
        assert part in str(caught.value), str(caught.value)


def test_what_was_written_is_whole(written: Path) -> None:
    assert checked_trainer(written, RUN) == {"x": 1, "manifest": 2}
    assert checked_trainer(written) == {"x": 1, "manifest": 2}  # whoever asks no matter whose it is
    files = json.loads((written / "manifest.json").read_text())["files"]
    assert {name: (one["bytes"], one["crc32"]) for name, one in files.items()} == {
        name: ((written / name).stat().st_size, manifest.checksum_of(written / name)) for name in ("rank_0.safetensors", "trainer.json")
    }


@pytest.mark.parametrize("name", ["rank_0.safetensors", "trainer.json", "manifest.json"])
def test_any_bit_that_has_changed_is_noticed(written: Path, name: str) -> None:
    content = (written / name).read_bytes()
    for at in range(0, len(content), max(1, len(content) // 40)):
        flipped = bytearray(content)
        flipped[at] ^= 1 << (at % 8)
        if name == "trainer.json" or content[at : at + 1].strip():  # a space in the manifest may be another one
            (written / name).write_bytes(bytes(flipped))
            refused(written)
    for other in (b"", content[:-2], content + b"x", b"\x00\xff"):
        (written / name).write_bytes(other)
        refused(written, name)
    (written / name).write_bytes(content)
    assert checked_trainer(written, RUN)


def test_weights_that_somebody_has_replaced_are_noticed(written: Path) -> None:
    path = written / "rank_0.safetensors"
    save_file({name: torch.full_like(tensor, 7) for name, tensor in load_file(path).items()}, path)
    refused(written, "rank_0.safetensors", "checksum", f"remove {written}")


@pytest.mark.parametrize("name", ["rank_0.safetensors", "trainer.json", "manifest.json"])
def test_a_file_that_is_gone_or_no_file(written: Path, name: str) -> None:
    (written / name).unlink()
    refused(written, name)
    (written / name).mkdir()
    refused(written, name)


def test_a_file_that_nobody_wrote(written: Path) -> None:
    shutil.copy(written / "rank_0.safetensors", written / "rank_1.safetensors")
    refused(written, "rank_1.safetensors")


def test_ranks_share_the_files(written: Path) -> None:
    """Of two files each of two ranks looks at one, so that none is read as often as there are ranks."""
    (written / "trainer.json").write_text(json.dumps({"x": 2, "manifest": 2}))
    assert checked_trainer(written, RUN, 0, 2)
    with pytest.raises(UserError, match="trainer.json"):
        checked_trainer(written, RUN, 1, 2)


def test_a_checkpoint_of_another_run(written: Path) -> None:
    with pytest.raises(UserError, match=f"of another run; given that of config {RUN}, in a run of another"):
        checked_trainer(written, "another")


def test_one_of_version_0_2_does_not_tell_whose_it_is(written: Path) -> None:
    """Its run had another fingerprint under another sharder. Its files are checked all the same."""
    known = json.loads((written / "manifest.json").read_text())
    (written / "manifest.json").write_text(json.dumps(known | {"version": 1}))
    assert checked_trainer(written, "another")
    (written / "rank_0.safetensors").write_bytes(b"x")
    refused(written, "rank_0.safetensors")


def test_one_of_a_version_that_had_no_manifest_is_taken_as_it_is(written: Path) -> None:
    (written / "manifest.json").unlink()
    (written / "trainer.json").write_text(json.dumps({"x": 1}))
    assert checked_trainer(written, RUN) == {"x": 1}


@pytest.mark.parametrize(
    "text", ["5", "[]", "{}", '{"version": 1, "run": "a", "files": 3}', '{"version": 3, "run": "a", "files": {}}', "[" * 100_000]
)
def test_a_manifest_of_another_shape(written: Path, text: str) -> None:
    (written / "manifest.json").write_text(text)
    refused(written, "manifest.json")


@pytest.mark.parametrize("text", ["5", "[]", '"a"', "null"])
def test_trainer_json_of_another_shape(written: Path, text: str) -> None:
    (written / "trainer.json").write_text(text)
    refused(written, "trainer.json")


@pytest.mark.parametrize(
    "pieces",
    [
        None, "5", "[]", '{"9": {"key": "a", "offset": [0]}}', '{"0": 5}', '{"0": {"key": 5, "offset": [0]}}', '{"0": {"key": "a"}}',
        '{"0": {"key": "a", "offset": ["x"]}}', '{"0": {"key": "a", "offset": [0, 0]}}', '{"0": {"key": "a", "offset": [-1]}}',
        '{"0": {"key": "a", "offset": 0}}', '{"0": {"key": "a", "offset": [0], "rows": "9"}}',
        '{"0": {"key": "a", "offset": [0], "rows": "0"}}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["pieces", "DCP_SHARDING_INFO"])
def test_a_header_of_another_shape(tmp_path: Path, pieces: str | None, name: str) -> None:
    """That of this version, and that of earlier ones."""
    text = pieces and pieces.replace('"offset"', '"offset"' if name == "pieces" else '"saved_offsets"')
    save_file({"0": torch.ones(4)}, tmp_path / "rank_0.safetensors", metadata={name: text} if text else None)
    with pytest.raises(UserError, match="rank_0.safetensors is not a rank's file"):
        Reader(tmp_path)


def test_only_whole_checkpoints_with_a_number_count(written: Path) -> None:
    for name in ("step=abc", "step=", "step=-1", "step=007", "step=1e3", "step=" + "9" * 40, "step=٣", "steps=9"):
        shutil.copytree(written, written.with_name(name))
    (written.with_name("step=12")).mkdir()
    shutil.copytree(written, written.with_name("step=10"))
    assert list(steps(written.parent)) == [5, 10] and latest(written.parent) == written.with_name("step=10")


def test_a_checkpoint_without_its_state_is_broken(written: Path) -> None:
    newer = shutil.copytree(written, written.with_name("step=10"))
    (newer / "trainer.json").unlink()
    assert latest(written.parent) == newer
    with pytest.raises(UserError, match=r"step=10: .*trainer.json cannot be read"):
        checked_trainer(newer)


def test_checkpoints_that_are_gone_are_missed(written: Path) -> None:
    run = written.parents[1]
    assert newest(run) == written
    progressed(run, 5)
    assert newest(run) == written
    shutil.rmtree(written.parent)
    with pytest.raises(UserError, match="step=5.*progress.json"):
        newest(run)
    (run / "progress.json").write_text("[")
    with pytest.raises(UserError, match="progress.json"):
        newest(run)
    (run / "progress.json").unlink()
    assert newest(run) is None


@pytest.mark.parametrize("replaced", [False, True])
def test_a_kill_while_a_checkpoint_is_replaced_leaves_the_one_before_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """As the best weights are: the old one is renamed away, and a moment later the new one renamed into its place."""
    best, replace = tmp_path / "best", os.replace
    save(best, [whole("a", torch.tensor([1.0]))], {}, 0, lambda: None)

    def killed(source: Path, to: Path) -> None:
        if Path(to) == best and not replaced:
            raise KeyboardInterrupt
        replace(source, to)
        if Path(to) == best:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save(best, [whole("a", torch.tensor([2.0]))], {}, 0, lambda: None)
    monkeypatch.setattr(os, "replace", replace)
    assert (tmp_path / f"{BEFORE}best").is_dir()
    clear_partial(tmp_path)
    actual = torch.zeros(1)
    Reader(best).fill(whole("a", actual))
    assert os.listdir(tmp_path) == ["best"] and actual.item() == (2.0 if replaced else 1.0) and checked_trainer(best)


def test_a_run_goes_on_with_the_data_that_it_began_with(tmp_path: Path) -> None:
    check_data(tmp_path, {"data": "one"}, "one")
    check_data(tmp_path, {"x": 1}, "one")  # of a version that did not say
    check_data(tmp_path, {"data": "one"}, "")  # whoever loads no matter on what
    with pytest.raises(UserError, match=r"the data are others than when this run began; given data two, trained on one; .*overwrite=true"):
        check_data(tmp_path, {"data": "one"}, "two")
