"""What a checkpoint consists of: every file with its size and checksum, whose run it is of, and of an incremental one the base.

Checksums are made while files are written, and compared before anything is read into a model. A byte that has changed since is refused.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from recsys_lab.base.files import write_json, write_text
from recsys_lab.errors import UserError

MANIFEST_FILE = "manifest.json"
#: In trainer.json too, so that a checkpoint of this version without its manifest is not taken for an older one, which had none.
VERSION = 2
#: Of incremental checkpoints, which earlier programs must refuse.
INCREMENTAL = 3
#: Of version 0.2, in which a run under another sharder was another run: whose checkpoint it is cannot be told.
OLD_VERSION = 1
_SUM = ".sum"
_CHUNK_BYTES = 1 << 24


def note(path: Path, checksum: int) -> None:
    """Leaves the checksum of the file `path`, which this rank wrote, beside it for `write`."""
    write_text(path.with_name(path.name + _SUM), str(checksum))


def version(base: Path | None) -> int:
    """Of a checkpoint with this base."""
    return VERSION if base is None else INCREMENTAL


def write(folder: Path, run: str, base: Path | None = None) -> None:
    """The manifest of all files of which `folder` has notes, for the run with this fingerprint. On disk when it returns.

    `base`: the full checkpoint of which `folder` has the updated rows.
    """
    notes = {path.name.removesuffix(_SUM): path for path in sorted(folder.glob(f"*{_SUM}"))}
    files = {name: {"bytes": (folder / name).stat().st_size, "crc32": int(path.read_text())} for name, path in notes.items()}
    named = {} if base is None else {"base": {"name": base.name, "crc32": checksum_of(base / MANIFEST_FILE)}}
    write_json(folder / MANIFEST_FILE, {"version": version(base), "run": run, **named, "files": files})
    for path in notes.values():
        path.unlink()


def check(folder: Path, run: str, trainer: dict[str, Any], rank: int = 0, world_size: int = 1) -> None:
    """Compares this rank's share of the files of a checkpoint with its manifest: all ranks together look at every file once.

    `trainer`: what its trainer.json holds. One of a version that wrote no manifest is taken as it is. Raises UserError.
    """
    if not (folder / MANIFEST_FILE).exists() and "manifest" not in trainer:
        return
    base = base_of(folder)
    if base is not None:
        check(base, run, {"manifest": VERSION}, rank, world_size)
    files = _files(folder, run)
    present = {path.name for path in folder.glob("rank_*.safetensors")}
    if other := sorted(present - set(files)):
        raise broken(folder, f"{other[0]} is not in its manifest")
    for name in sorted(files)[rank::world_size]:
        try:
            size, checksum = (folder / name).stat().st_size, checksum_of(folder / name)
        except OSError as error:
            raise broken(folder, f"{name}: {error.strerror}") from None
        if (size, checksum) != (files[name]["bytes"], files[name]["crc32"]):
            raise broken(folder, f"{name} is not what was written: its checksum or size differs")


def broken(folder: Path, what: str) -> UserError:
    """The refusal of a checkpoint, and what to do."""
    return UserError(
        f"the checkpoint is broken: {what}",
        where=folder,
        remedy=f"put the file back; or remove {folder}, and the run goes on from the checkpoint before it",
    )


def checksum_of(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def base_of(folder: Path) -> Path | None:
    """The full checkpoint that an incremental one needs; None of a full one, and of one without a manifest.

    Raises UserError where it is gone, or another than it was.
    """
    if not (folder / MANIFEST_FILE).exists():
        return None
    manifest = _read(folder)
    if (version := manifest.get("version")) != INCREMENTAL:
        return None
    try:
        name, checksum = str(manifest["base"]["name"]), manifest["base"]["crc32"]
        base = folder.with_name(name)
        now = checksum_of(base / MANIFEST_FILE) if base.is_dir() else None
        named = _read(base).get("version") if now == checksum else VERSION
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise broken(folder, f"the base that {MANIFEST_FILE} of version {version} names cannot be read ({type(error).__name__})") from None
    if now != checksum or named not in (OLD_VERSION, VERSION):
        what = "is not there" if now is None else "is another than it was"
        raise broken(folder, f"{name}, of which it has the updated rows, {what}")
    return base


def _read(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise broken(folder, f"{MANIFEST_FILE} cannot be read ({type(error).__name__})") from None
    if not isinstance(manifest, dict):
        raise broken(folder, f"{MANIFEST_FILE} holds {type(manifest).__name__}, no mapping")
    return manifest


def _files(folder: Path, run: str) -> dict[str, dict[str, int]]:
    manifest = _read(folder)
    try:
        version, written_by = manifest["version"], manifest["run"]
        files = {str(name): {"bytes": one["bytes"], "crc32": one["crc32"]} for name, one in manifest["files"].items()}
    except (LookupError, TypeError, AttributeError) as error:
        raise broken(folder, f"{MANIFEST_FILE} cannot be read ({type(error).__name__})") from None
    if version not in (OLD_VERSION, VERSION, INCREMENTAL):
        raise broken(folder, f"{MANIFEST_FILE} is of version {version}, not {VERSION} or {INCREMENTAL}")
    if run and version != OLD_VERSION and written_by != run:
        raise UserError(
            "the checkpoint is of another run",
            where=folder,
            given=f"that of config {written_by}, in a run of {run}",
            remedy="resume the run that wrote it, or remove it",
        )
    return files
