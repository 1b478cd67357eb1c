"""Reads the weights of an export, by the names that a checkpoint has. Tables in int8 become numbers again, a few rows at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from recsys_lab.base.export_files import DENSE_FILE, FORMATS, MODEL_FILE, VERSION
from recsys_lab.base.files import read_json
from recsys_lab.errors import UserError
from recsys_lab.train.blocks import Block, BlockReader
from recsys_lab.train.manifest import broken


def is_export(folder: Path) -> bool:
    return (folder / MODEL_FILE).is_file()


def reader_of(folder: Path) -> tuple[BlockReader, str]:
    """Of the export in `folder`, and the format of its tables. Raises UserError where it is broken, or of another version."""
    about = read_json(folder / MODEL_FILE, "name the folder of an export")
    version = about.get("version") if isinstance(about, dict) else None
    if version != VERSION:
        raise UserError("an export of another version", where=folder / MODEL_FILE, given=version, allowed=VERSION, remedy="export again")
    try:
        dense = safe_open(folder / DENSE_FILE, framework="pt")
        blocks = {}
        for name in dense.keys():
            key = f"buffer.{name}" if name in about["buffers"] else f"dense.{name}"
            shape = tuple(dense.get_slice(name).get_shape())
            blocks[key] = [Block((0,) * len(shape), shape, partial(_read, dense, name))]
        formats = set()
        for name, table in about["tables"].items():
            formats.add(table["format"])
            blocks[f"table.{name}.weight"] = [_block(folder, f"table.{name}", table, shard) for shard in table["shards"]]
        if not formats <= set(FORMATS):
            raise ValueError(f"formats {formats}")
        return BlockReader(folder, blocks), ", ".join(sorted(formats))
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise broken(folder, f"it is no export ({type(error).__name__}: {error})") from None


def _block(folder: Path, name: str, table: dict[str, Any], shard: dict[str, Any]) -> Block:
    file = safe_open(folder / shard["file"], framework="pt")
    read = _dequantised if table["format"] == "int8" else _read_weight
    return Block((int(shard["first"]), 0), (int(shard["rows"]), int(table["dim"])), partial(read, file, name))


def _read(file: Any, name: str, cut: tuple[slice, ...]) -> torch.Tensor:
    return file.get_slice(name)[cut] if cut else file.get_tensor(name)


def _read_weight(file: Any, name: str, cut: tuple[slice, ...]) -> torch.Tensor:
    return file.get_slice(f"{name}.weight")[cut].float()


def _dequantised(file: Any, name: str, cut: tuple[slice, ...]) -> torch.Tensor:
    scale, offset = (file.get_slice(f"{name}.{part}")[cut[0]][:, None] for part in ("scale", "offset"))
    return _read_weight(file, name, cut) * scale + offset
