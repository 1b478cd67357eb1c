"""The checkpoint of a user's module: a folder with a file for each rank, which Lightning's CheckpointIO writes and reads.

It has what Lightning's own has: loops, callbacks, hyperparameters, the state of the user's optimizers. A rank's file also says where its
shards stand (`Layout`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor

from recsys_lab.errors import UserError
from recsys_lab.lightning.pieces import Layout, resharded

#: Under this key a rank's file says where its shards stand.
LAYOUT = "recsys_lab_layout"
#: Reads a rank's file.
Read = Callable[[Path], dict[str, Any]]


def save(checkpoint: dict[str, Any], folder: Path, layout: Layout, strategy: ParallelStrategy, storage_options: Any = None) -> None:
    """Every rank writes its file. The folder has its name when all are there. Collective."""
    partial = Path(f"{folder}.partial")
    if strategy.is_global_zero:
        for path in (folder, partial):
            remove(path)
        partial.mkdir(parents=True)
    strategy.barrier()
    path = partial / _file_of(strategy.global_rank, strategy.world_size)
    strategy.checkpoint_io.save_checkpoint(checkpoint | {LAYOUT: layout.plain()}, path, storage_options)
    strategy.barrier()
    if strategy.is_global_zero:
        partial.rename(folder)
    strategy.barrier()


def load(folder: Path, layout: Layout, rank: int, read: Read) -> dict[str, Any]:
    """This rank's part of a checkpoint, in its own `layout`."""
    path = folder / _file_of(rank, layout.world_size)
    if path.is_file():
        saved_layout, part = _read(path, read)
        if saved_layout.plan == layout.plan:
            return part
    return resharded(lambda: _files_of(folder, read), layout, folder)


def remove(path: Path) -> None:
    """Deletes a checkpoint, or a link to one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def whole_weights(checkpoint: Path | str) -> dict[str, Tensor]:
    """The weights of a checkpoint of ShardedStrategy, with whole tables: for `load_state_dict` of the module that is not sharded.

    Args:
        checkpoint: the folder that ModelCheckpoint wrote.

    Returns:
        A state dict on the CPU. All tables must fit into memory.

    Raises:
        UserError: for a folder that is no checkpoint of ShardedStrategy, or that lacks a rank's file.
    """
    folder = Path(checkpoint)

    def read(path: Path) -> dict[str, Any]:
        return torch.load(path, map_location="cpu", weights_only=True)

    layout, _ = next(_files_of(folder, read))
    weights = resharded(lambda: _files_of(folder, read, ("state_dict",)), layout.whole(), folder)["state_dict"]
    return {name: value[0] if isinstance(value, list) else value for name, value in weights.items()}


def _file_of(rank: int, world_size: int) -> str:
    return f"rank_{rank}_of_{world_size}.ckpt"


def _files_of(folder: Path, read: Read, keys: tuple[str, ...] | None = None) -> Iterator[tuple[Layout, dict[str, Any]]]:
    """The files of all ranks that wrote `folder`, one at a time; of each the entries `keys`, or all."""
    first = sorted(folder.glob("rank_0_of_*.ckpt"))
    if len(first) != 1:
        given = "a folder without it" if folder.is_dir() else "a file" if folder.exists() else "nothing"
        raise UserError("no checkpoint of a ShardedStrategy", where=folder, given=given, allowed="a folder with rank_0_of_N.ckpt")
    world_size = int(first[0].stem.rpartition("_")[2])
    for rank in range(world_size):
        layout, part = _read(folder / _file_of(rank, world_size), read)
        yield layout, part if keys is None else {key: part[key] for key in keys}


def _read(path: Path, read: Read) -> tuple[Layout, dict[str, Any]]:
    if not path.is_file():
        raise UserError("a rank's file is missing", where=path, remedy="copy the whole folder of the checkpoint")
    part = dict(read(path))
    if (layout := part.pop(LAYOUT, None)) is None:
        raise UserError("it does not say where its shards stand", where=path, remedy="resume with the version that wrote it")
    return Layout(**layout), part


__all__ = ["whole_weights"]
