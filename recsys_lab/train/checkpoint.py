"""Sharded checkpoints: safetensors and JSON, nothing pickled.

A checkpoint is a folder. Every rank writes the pieces it owns to `rank_R.safetensors`, by name, as torch.distributed.checkpoint's
HuggingFaceStorageWriter does (its header says where each piece stands in its tensor). So its HuggingFaceStorageReader reads them, too.
`trainer.json` holds the rest. A piece is read back by extents, or by the ids of its rows where they lie anywhere in the tensor. So
another placement or another number of ranks reads the same checkpoint. Rows in files that nobody has read yet are left out
(uninitialised_rows.py). The folder is written under another name and renamed when whole: a kill leaves the previous one good.

An incremental checkpoint has of tables only rows that were updated since a full one, its base, which lies beside it. `Reader` reads both.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from recsys_lab.base.files import write_text
from recsys_lab.errors import UserError, cannot_write
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.train import manifest
from recsys_lab.train.checkpoint_folder import BEFORE, PARTIAL, TRAINER_FILE
from recsys_lab.train.overlap import matches, overlap
from recsys_lab.train.tensor_file import Content, row_steps, write_tensors
from recsys_lab.train.uninitialised_rows import Uninitialised, listed_rows, missing_parts, of_listed

#: Names of torch.distributed.checkpoint's, in the header of a file: by tensor the offsets of what is there of it.
SHARDING, OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
#: Of versions before 0.3, which numbered the tensors.
OLD_PIECES = "pieces"


@dataclass(frozen=True)
class Piece:
    """`tensor` stands at `offset` (one number a dimension) in the whole tensor called `key`.

    Hi/lo split weights and those with a master are FP32 in the file. They are joined and split a few rows at a time.

    `rows` int64, distinct: of the whole tensor, the row that each of its rows is. Then the first offset means nothing.
    `uninitialised`: what other rows are, which a file need not hold. `updated`: other rows are what they are in the base.
    """

    key: str
    offset: tuple[int, ...]
    tensor: Content
    rows: np.ndarray | None = None
    uninitialised: Uninitialised | None = None
    updated: bool = False


def whole(key: str, tensor: Content) -> Piece:
    """A tensor that is not sharded."""
    return Piece(key, (0,) * len(tensor.shape), tensor)


def save(
    folder: Path,
    pieces: Iterable[Piece],
    trainer: Mapping[str, Any],
    rank: int,
    barrier: Callable[[], None],
    run: str = "",
    base: Path | None = None,
    done: Callable[[], None] = lambda: None,
) -> int:
    """Writes this rank's `pieces`, and returns their bytes; collective. Rank 0 adds `trainer` (plain JSON) and the manifest, and renames.

    `run`: the fingerprint of the run's config. `base`: of `pieces` of updated rows. `done`: what rank 0 calls then. Raises UserError if it
    cannot write.
    """
    partial, before = folder.with_name(PARTIAL + folder.name), folder.with_name(BEFORE + folder.name)
    written = 0
    try:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        barrier()
        for path, checksum in _write_rank(partial, rank, _without_uninitialised(list(pieces))):
            manifest.note(path, checksum)
            written += path.stat().st_size
        if rank == 0:
            text = json.dumps({**trainer, "manifest": manifest.version(base)})
            manifest.note(write_text(partial / TRAINER_FILE, text), zlib.crc32(text.encode()))
        barrier()
        if rank == 0:
            manifest.write(partial, run, base)
            _sync_folder(partial)
            if folder.exists():
                os.replace(folder, before)
            os.replace(partial, folder)
            _sync_folder(folder.parent)
            shutil.rmtree(before, ignore_errors=True)
            done()
        barrier()
    except OSError as error:
        raise cannot_write(error, folder) from None
    except SafetensorError as error:
        raise UserError(f"cannot write the checkpoint ({error})", where=folder, remedy="free some space and resume") from None
    return written


def _without_uninitialised(pieces: list[Piece]) -> list[Piece]:
    """`pieces` with those rows of stores that were ever read, where they are few."""
    fields = [(piece.tensor, piece.offset[0]) for piece in pieces if isinstance(piece.tensor, RowField) and piece.rows is None]
    listed, rest = listed_rows(fields), []
    for piece in pieces:
        known = listed.get(id(piece.tensor.rows)) if isinstance(piece.tensor, RowField) and piece.rows is None else None
        if known is None:
            rest.append(piece)
        else:
            assert isinstance(piece.tensor, RowField)
            field, uninitialised = of_listed(piece.tensor, known, piece.offset[0])
            rest.append(replace(piece, tensor=field, rows=known.rows, uninitialised=uninitialised))
    return rest


def _apart(pieces: list[Piece]) -> list[list[Piece]]:
    """`pieces` in files, of which each has at most one block of a tensor: a name stands once in a file. At least one file."""
    files: list[dict[str, Piece]] = [{}]
    for number, piece in enumerate(pieces):
        name = piece.key if piece.rows is None else f"{number}"
        file = next((file for file in files if name not in file), None)
        if file is None:
            files.append(file := {})
        file[name] = piece
    return [list(file.values()) for file in files]


def _write_rank(folder: Path, rank: int, pieces: list[Piece]) -> Iterator[tuple[Path, int]]:
    """The files of a rank, with their checksums."""
    for number, part in enumerate(_apart(pieces)):
        path = folder / f"rank_{rank}{f'_{number}' if number else ''}.safetensors"
        yield path, _write_file(path, part)


def _write_file(path: Path, pieces: list[Piece]) -> int:
    """The checksum of the file."""
    tensors: dict[str, Content] = {}
    where: dict[str, dict[str, Any]] = {}
    names_of_rows: dict[int, str] = {}
    for number, piece in enumerate(pieces):
        if piece.rows is None:
            tensors[piece.key] = piece.tensor
            where[piece.key] = {OFFSETS: list(piece.offset)}
            continue
        here = f"@{path.stem}.{number}"  # rows anywhere are no block: to other readers a tensor of its own
        name, rows = piece.key + here, names_of_rows.setdefault(id(piece.rows), f"rows{here}")  # the same array of ids is there once
        tensors[name] = piece.tensor
        tensors.setdefault(rows, torch.from_numpy(piece.rows))
        where.setdefault(rows, {OFFSETS: [0]})
        where[name] = {OFFSETS: [0] * len(piece.offset), "key": piece.key, "offset": list(piece.offset), "rows": rows}
        if piece.uninitialised is not None:
            where[name]["unread"] = piece.uninitialised.to_json()
        if piece.updated:
            where[name]["updated"] = True
    return write_tensors(path, tensors, {SHARDING: json.dumps(where), "DCP_VERSION": "1.0", "format": "pt"})


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def read_trainer(folder: Path) -> dict[str, Any]:
    """The JSON part of a checkpoint. Raises UserError if it is missing or broken."""
    try:
        trainer = json.loads((folder / TRAINER_FILE).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise manifest.broken(folder, f"{TRAINER_FILE} cannot be read ({type(error).__name__})") from None
    if not isinstance(trainer, dict):
        raise manifest.broken(folder, f"{TRAINER_FILE} holds {type(trainer).__name__}, no mapping")
    return trainer


def checked_trainer(folder: Path, run: str = "", rank: int = 0, world_size: int = 1) -> dict[str, Any]:
    """The JSON part of a checkpoint whose files are as they were written, this rank's share of them. Raises UserError."""
    trainer = read_trainer(folder)
    manifest.check(folder, run, trainer, rank, world_size)
    return trainer


def check_data(folder: Path, trainer: Mapping[str, Any], data: str) -> None:
    """UserError where `data`, a fingerprint, is not what the checkpoint was trained on. An older one does not say, and passes."""
    trained_on = trainer.get("data")
    if data and trained_on and trained_on != data:
        raise UserError(
            "the data are others than when this run began",
            where=folder,
            given=f"data {data}, trained on {trained_on}",
            remedy="put the data back; or begin anew, without resume: hydra.run.dir=DIR, or overwrite=true",
        )


@dataclass(frozen=True)
class _Saved:
    """A piece in a file. `rows`: the name of its rows' ids, if it has them. `uninitialised`: what rows are that it does not list."""

    file: Any
    name: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    rows: str | None
    uninitialised: Uninitialised | None
    updated: bool = False

    def read(self, cut: tuple[slice, ...]) -> torch.Tensor:
        return self.file.get_slice(self.name)[cut] if self.shape else self.file.get_tensor(self.name)


def pieces_of(header: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """By its name in a file, of each piece its key, its offset, and what else `_saved` wants. Raises what it meets in another header.

    The ids of a piece's rows are a tensor of the file, and no piece.
    """
    if OLD_PIECES in header:
        return dict(json.loads(header[OLD_PIECES]).items())
    named = json.loads(header[SHARDING])
    ids = {where.get("rows") for where in named.values()}
    return {name: {"key": name, "offset": where[OFFSETS]} | where for name, where in named.items() if name not in ids or "rows" in where}


def _saved(file: Any, name: str, where: Mapping[str, Any]) -> _Saved:
    """Raises what it meets in a header of another shape."""
    shape, offset, rows = tuple(file.get_slice(name).get_shape()), tuple(where["offset"]), where.get("rows")
    if len(offset) != len(shape) or not all(isinstance(one, int) and one >= 0 for one in offset) or not isinstance(where["key"], str):
        raise ValueError(f"piece {name} stands at {offset}")
    if rows is not None and (file.get_slice(rows).get_shape(), file.get_slice(rows).get_dtype()) != ([shape[0]], "I64"):
        raise ValueError(f"rows {rows} of piece {name}")
    uninitialised = None if where.get("unread") is None else Uninitialised.from_json(where["unread"])
    if uninitialised is not None and (rows is None or not shape):
        raise ValueError(f"piece {name} lists no rows")
    updated = where.get("updated", False)
    if not isinstance(updated, bool) or (updated and rows is None):
        raise ValueError(f"piece {name} lists no rows")
    return _Saved(file, name, offset, shape, rows, uninitialised, updated)


class Reader:
    """Reads parts of tensors from the pieces of a checkpoint, whoever wrote them: of an incremental one together with its base."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._saved = _saved_in(folder)
        #: By table, rows that replace those of the base.
        self._updated: dict[str, list[_Saved]] = {}
        if (base := manifest.base_of(folder)) is None:
            return
        for key, saved in _saved_in(base).items():
            self._updated[key] = [one for one in self._saved.get(key, []) if one.updated]
            if self._updated[key] or key not in self._saved:
                self._saved[key] = saved

    def __contains__(self, key: str) -> bool:
        return key in self._saved

    def keys(self) -> Iterable[str]:
        """Of all tensors, by name."""
        return self._saved.keys()

    def shape(self, key: str) -> tuple[int, ...]:
        """Of the whole tensor, as far as it was saved."""
        return tuple(map(max, zip(*(_stops(saved) for saved in self._saved[key]))))  # a base has all rows

    def fill(self, piece: Piece) -> None:
        """Copies into `piece.tensor` what was saved for its extents or rows. Raises UserError if some of it was not saved."""
        if missing := self.copy(piece):
            raise UserError(
                "the checkpoint lacks a part of this tensor",
                where=f"{self.folder} {piece.key}",
                given=f"{missing} elements missing",
                remedy="resume with the config that wrote it",
            )

    def copy(self, piece: Piece) -> int:
        """The same. How many elements were not saved, and stay what they are."""
        missing = math.prod(piece.tensor.shape)
        if not missing:
            return 0
        for saved in self._saved.get(piece.key, []):
            if len(saved.shape) != len(piece.tensor.shape):
                break
            by_extents = piece.rows is None and saved.rows is None
            missing -= _copy_extents(piece, saved) if by_extents else _copy_rows(piece, saved) + _set_uninitialised(piece, saved)
        for saved in self._updated.get(piece.key, []):
            if len(saved.shape) == len(piece.tensor.shape):
                _copy_rows(piece, saved)
        return missing


def _saved_in(folder: Path) -> dict[str, list[_Saved]]:
    """The pieces in the files of one folder, by tensor. Raises UserError."""
    pieces: dict[str, list[_Saved]] = {}
    try:
        for path in sorted(folder.glob("rank_*.safetensors")):
            file = safe_open(path, framework="pt")
            for name, where in pieces_of(file.metadata()).items():
                pieces.setdefault(where["key"], []).append(_saved(file, name, where))
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise manifest.broken(folder, f"{path.name} is not a rank's file ({type(error).__name__}: {error})") from None
    return pieces


def _stops(saved: _Saved) -> tuple[int, ...]:
    """Where the piece ends in the whole tensor, a number a dimension."""
    stops = tuple(offset + size for offset, size in zip(saved.offset, saved.shape))
    if (rows := _saved_rows(saved)) is None:
        return stops
    rest = saved.uninitialised
    return (max(int(rows.max(initial=-1)) + 1, rest.start + rest.count if rest is not None else 0), *stops[1:])


def _copy_extents(piece: Piece, saved: _Saved) -> int:
    """Copies what both have. How many elements."""
    there, here = overlap(piece.offset, piece.tensor.shape, saved.offset, saved.shape)
    if any(cut.start >= cut.stop for cut in there):
        return 0
    if not there:
        _set(piece.tensor, (), saved.read(()))
        return 1
    for rows in row_steps(there[0].start, there[0].stop, saved.shape):
        first = rows.start - there[0].start + here[0].start
        own = slice(first, first + rows.stop - rows.start)
        _set(piece.tensor, (own, *here[1:]), saved.read((rows, *there[1:])))
    return math.prod(cut.stop - cut.start for cut in there)


def _set(content: Content, where: Any, values: torch.Tensor) -> None:
    if isinstance(content, StoredWeights):
        content.write(values.to(content.model.device, torch.float32), where)
    elif isinstance(content, RowField):
        content.write(values.to(torch.float32), where)
    else:
        assert isinstance(content, torch.Tensor), "some rows are only written to files"
        content[where] = values.to(content)


def _copy_rows(piece: Piece, saved: _Saved) -> int:
    """The same where rows are identified by id, a few of the saved rows at a time."""
    columns_there, columns_here = overlap(piece.offset[1:], piece.tensor.shape[1:], saved.offset[1:], saved.shape[1:])
    if any(cut.start >= cut.stop for cut in columns_there):
        return 0
    to, source = matches(_ids(piece.rows, piece.offset, piece.tensor.shape[0]), _ids(_saved_rows(saved), saved.offset, saved.shape[0]))
    copied = 0
    for rows in row_steps(0, saved.shape[0], saved.shape):
        first, last = np.searchsorted(source, [rows.start, rows.stop])
        if first == last:
            continue
        values = saved.read((rows, *columns_there))[torch.from_numpy(source[first:last] - rows.start)]
        _set(piece.tensor, (torch.from_numpy(to[first:last]), *columns_here), values)
        copied += values.numel()
    return copied


def _set_uninitialised(piece: Piece, saved: _Saved) -> int:
    """Sets rows that the saved piece does not list but says. How many elements."""
    columns_there, columns_here = overlap(piece.offset[1:], piece.tensor.shape[1:], saved.offset[1:], saved.shape[1:])
    if saved.uninitialised is None or any(cut.start >= cut.stop for cut in columns_there):
        return 0
    listed, counted = _saved_rows(saved), 0
    assert listed is not None
    columns = [slice(cut.start + begin, cut.stop + begin) for cut, begin in zip(columns_here, piece.offset[1:])]
    ids = _ids(piece.rows, piece.offset, piece.tensor.shape[0])
    for elements, at, values in missing_parts(piece.tensor, ids, saved.uninitialised, listed, columns):
        counted += elements
        if values is not None:
            _set(piece.tensor, (torch.from_numpy(at), *columns_here), values)
    return counted


def _saved_rows(saved: _Saved) -> np.ndarray | None:
    return None if saved.rows is None else saved.file.get_tensor(saved.rows).numpy()


def _ids(rows: np.ndarray | None, offset: Sequence[int], count: int) -> np.ndarray | range:
    return range(offset[0], offset[0] + count) if rows is None else rows
