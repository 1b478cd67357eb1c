"""Sharded checkpoints: safetensors and JSON, nothing pickled.

A checkpoint is a folder. Every rank writes the pieces it owns to `rank_R.safetensors`, whose header says where each piece stands
in its tensor; `trainer.json` holds the rest. A piece is read back by extents, so another placement or another number of ranks
reads the same checkpoint. The folder is written under another name and renamed when whole: a kill leaves the previous one good.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from recsys_lab.errors import UserError, unwritable

PARTIAL = ".partial-"
TRAINER_FILE = "trainer.json"


@dataclass(frozen=True)
class Piece:
    """`tensor` stands at `offset` (one number a dimension) in the whole tensor called `key`."""

    key: str
    offset: tuple[int, ...]
    tensor: torch.Tensor


def whole(key: str, tensor: torch.Tensor) -> Piece:
    """A tensor that is not sharded."""
    return Piece(key, (0,) * tensor.dim(), tensor)


def save(folder: Path, pieces: Iterable[Piece], trainer: Mapping[str, Any], rank: int, barrier: Callable[[], None]) -> None:
    """Writes this rank's `pieces`; collective. Rank 0 adds `trainer` (plain JSON) and renames. Raises UserError if it cannot write."""
    partial = folder.with_name(PARTIAL + folder.name)
    try:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        barrier()
        _write_rank(partial / f"rank_{rank}.safetensors", list(pieces))
        if rank == 0:
            _write_text(partial / TRAINER_FILE, json.dumps(trainer))
        barrier()
        if rank == 0:
            if folder.exists():
                remove(folder)
            os.replace(partial, folder)
            _sync_folder(folder.parent)
        barrier()
    except OSError as error:
        raise unwritable(error, folder) or error from None
    except SafetensorError as error:
        raise UserError(f"cannot write the checkpoint ({error})", where=folder, remedy="free some space and resume") from None


def _write_rank(path: Path, pieces: list[Piece]) -> None:
    names = [f"{i}" for i in range(len(pieces))]
    where = {name: {"key": p.key, "offset": list(p.offset)} for name, p in zip(names, pieces)}
    save_file({n: p.tensor.detach().cpu().contiguous() for n, p in zip(names, pieces)}, path, metadata={"pieces": json.dumps(where)})
    with open(path, "rb+") as f:
        os.fsync(f.fileno())


def _write_text(path: Path, text: str) -> None:
    with open(path, "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def latest(checkpoints: Path) -> Path | None:
    """The newest whole checkpoint in a run's `checkpoints` folder (`step=N`), or None."""
    found = [p for p in checkpoints.glob("step=*") if (p / TRAINER_FILE).is_file()] if checkpoints.is_dir() else []
    return max(found, key=lambda p: int(p.name.split("=")[1]), default=None)


def read_trainer(folder: Path) -> dict[str, Any]:
    """The JSON part of a checkpoint. Raises UserError if it is missing or broken."""
    try:
        return json.loads((folder / TRAINER_FILE).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"not a checkpoint ({type(error).__name__})", where=folder) from None


class Reader:
    """Reads parts of tensors from the pieces of a checkpoint, whoever wrote them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._saved: dict[str, list[tuple[Any, str, tuple[int, ...], tuple[int, ...]]]] = {}
        try:
            for path in sorted(folder.glob("rank_*.safetensors")):
                file = safe_open(path, framework="pt")
                for name, where in json.loads(file.metadata()["pieces"]).items():
                    shape = tuple(file.get_slice(name).get_shape())
                    self._saved.setdefault(where["key"], []).append((file, name, tuple(where["offset"]), shape))
        except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise UserError(
                f"the checkpoint is broken ({error})", where=folder, remedy="delete it and resume from the one before"
            ) from None

    def __contains__(self, key: str) -> bool:
        return key in self._saved

    def fill(self, piece: Piece) -> None:
        """Copies into `piece.tensor` what was saved for its extents. Raises UserError if some of it was not saved."""
        if piece.tensor.numel() == 0:
            return
        missing = piece.tensor.numel()
        for file, name, offset, shape in self._saved.get(piece.key, []):
            if len(shape) != piece.tensor.dim():
                break
            starts = [max(a, b) for a, b in zip(piece.offset, offset)]
            stops = [min(a + n, b + m) for a, n, b, m in zip(piece.offset, piece.tensor.shape, offset, shape)]
            if any(start >= stop for start, stop in zip(starts, stops)):
                continue
            source = (
                file.get_slice(name)[tuple(slice(s - o, e - o) for s, e, o in zip(starts, stops, offset))]
                if shape
                else file.get_tensor(name)
            )
            target = piece.tensor[tuple(slice(s - o, e - o) for s, e, o in zip(starts, stops, piece.offset))] if shape else piece.tensor
            target.copy_(source)
            missing -= source.numel()
        if missing:
            raise UserError(
                "the checkpoint lacks a part of this tensor",
                where=f"{self.folder} {piece.key}",
                given=f"{missing} elements missing",
                remedy="resume with the config that wrote it",
            )


def remove(folder: Path) -> None:
    """Deletes a checkpoint: renamed first, so that a kill in the middle leaves nothing that looks whole."""
    doomed = folder.with_name(PARTIAL + "old-" + folder.name)
    os.replace(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clear_partial(checkpoints: Path) -> None:
    """Deletes what a kill or a full disk cut short. Only while nobody writes there."""
    for left in checkpoints.glob(PARTIAL + "*"):
        shutil.rmtree(left, ignore_errors=True)
