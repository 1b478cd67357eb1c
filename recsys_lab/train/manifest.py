"""What a checkpoint consists of: every file with its size and checksum, and whose run it is of.

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
#: Of version 0.2, in which a run under another sharder was another run: whose checkpoint it is cannot be told.
OLD_VERSION = 1
_SUM = ".sum"
_CHUNK_BYTES = 1 << 24


def note(path: Path, checksum: int) -> None:
    """Leaves the checksum of the file `path`, which this rank wrote, beside it for `write`."""
    write_text(path.with_name(path.name + _SUM), str(checksum))


def write(folder: Path, run: str) -> None:
    """The manifest of all files of which `folder` has notes, for the run with this fingerprint. On disk when it returns."""
    notes = {path.name.removesuffix(_SUM): path for path in sorted(folder.glob(f"*{_SUM}"))}
    files = {name: {"bytes": (folder / name).stat().st_size, "crc32": int(path.read_text())} for name, path in notes.items()}
    write_json(folder / MANIFEST_FILE, {"version": VERSION, "run": run, "files": files})
    for path in notes.values():
        path.unlink()


def check(folder: Path, run: str, trainer: dict[str, Any], rank: int = 0, world_size: int = 1) -> None:
    """Compares this rank's share of the files of a checkpoint with its manifest: all ranks together look at every file once.

    `trainer`: what its trainer.json holds. One of a version that wrote no manifest is taken as it is. Raises UserError.
    """
    if not (folder / MANIFEST_FILE).exists() and "manifest" not in trainer:
        return
    files = _read(folder, run)
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


def _read(folder: Path, run: str) -> dict[str, dict[str, int]]:
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
        version, written_by = manifest["version"], manifest["run"]
        files = {str(name): {"bytes": one["bytes"], "crc32": one["crc32"]} for name, one in manifest["files"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise broken(folder, f"{MANIFEST_FILE} cannot be read ({type(error).__name__})") from None
    if version not in (OLD_VERSION, VERSION):
        raise broken(folder, f"{MANIFEST_FILE} is of version {version}, not {VERSION}")
    if run and version == VERSION and written_by != run:
        raise UserError(
            "the checkpoint is of another run",
            where=folder,
            given=f"that of config {written_by}, in a run of {run}",
            remedy="resume the run that wrote it, or remove it",
        )
    return files
