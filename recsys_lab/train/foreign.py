"""Reads weights that another program saved by torch.distributed.checkpoint: TorchRec's DistributedModelParallel, for one.

Its default writer leaves `.metadata`, a pickle, and `*.distcp`. Of a pickle nothing is made but the classes of torch's own description of
a checkpoint, and tensors by `weights_only`. Its writer for safetensors leaves `*.safetensors`, which hold no code. Blocks are read when
they are needed.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from recsys_lab.errors import UserError
from recsys_lab.train.blocks import Block
from recsys_lab.train.checkpoint import SHARDING, pieces_of

METADATA_FILE = ".metadata"
#: What a description consists of, by module. Anything else is refused: a pickle can call what it names.
_MADE: Mapping[str, frozenset[str]] = {
    "torch.distributed.checkpoint.metadata": frozenset(
        {"Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex", "TensorProperties"}
        | {"StorageMeta", "_MEM_FORMAT_ENCODING"}
    ),
    "torch.distributed.checkpoint.filesystem": frozenset({"_StorageInfo", "_StoragePrefix"}),
    "torch.serialization": frozenset({"_get_layout"}),
    "torch": frozenset({"Size"} | {name for name, value in vars(torch).items() if isinstance(value, torch.dtype)}),
    "pathlib": frozenset({"PosixPath", "PurePosixPath"}),
    "collections": frozenset({"OrderedDict"}),
}


def foreign_blocks(folder: Path) -> dict[str, list[Block]]:
    """By name the blocks of each tensor in `folder`. Raises UserError where there are none, or they cannot be read."""
    try:
        if (folder / METADATA_FILE).is_file():
            return _of_distcp(folder)
        if files := sorted(folder.glob("*.safetensors")):
            return _of_safetensors(files)
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(
            f"no checkpoint that can be read ({type(error).__name__}: {error})", where=folder, remedy="save it again, or copy it whole"
        ) from None
    allowed = f"a folder of torch.distributed.checkpoint, with {METADATA_FILE} or *.safetensors"
    raise UserError("no checkpoint", where=folder, allowed=allowed, remedy="save one: dcp.save(model.state_dict(), checkpoint_id=FOLDER)")


class _Description(pickle.Unpickler):
    """Makes what `_MADE` names, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _MADE.get(module, ()):
            raise UserError(
                "the description of the checkpoint names code", where=METADATA_FILE, given=f"{module}.{name}", allowed="torch's own classes"
            )
        return getattr(importlib.import_module(module), name)


def _of_distcp(folder: Path) -> dict[str, list[Block]]:
    description = _Description(io.BytesIO((folder / METADATA_FILE).read_bytes())).load()
    stored = {(index.fqn, tuple(index.offset or ())): info for index, info in description.storage_data.items()}
    blocks: dict[str, list[Block]] = {}
    for name, tensor in description.state_dict_metadata.items():
        for chunk in getattr(tensor, "chunks", ()):  # bytes that are no tensor have none
            offset = tuple(chunk.offsets)
            info = stored.get((name, offset)) or stored[name, ()]
            if getattr(info, "transform_descriptors", None):
                raise ValueError(f"{name} is stored as {info.transform_descriptors}")
            read = partial(_read_item, folder / Path(info.relative_path).name, info.offset, info.length)
            blocks.setdefault(name, []).append(Block(offset, tuple(chunk.sizes), read))
    return blocks


def _read_item(file: Path, offset: int, length: int, cut: tuple[slice, ...]) -> torch.Tensor:
    with file.open("rb") as opened:
        opened.seek(offset)
        tensor = torch.load(io.BytesIO(opened.read(length)), map_location="cpu", weights_only=True)
    return tensor[cut] if cut else tensor


def _of_safetensors(files: list[Path]) -> dict[str, list[Block]]:
    blocks: dict[str, list[Block]] = {}
    for path in files:
        file = safe_open(path, framework="pt")
        placed = pieces_of(file.metadata()) if SHARDING in (file.metadata() or {}) else {}
        for name in file.keys():
            shape = tuple(file.get_slice(name).get_shape())
            offset = tuple(placed[name]["offset"]) if name in placed else (0,) * len(shape)
            blocks.setdefault(name, []).append(Block(offset, shape, partial(_read_slice, file, name)))
    return blocks


def _read_slice(file: Any, name: str, cut: tuple[slice, ...]) -> torch.Tensor:
    return file.get_slice(name)[cut] if cut else file.get_tensor(name)
