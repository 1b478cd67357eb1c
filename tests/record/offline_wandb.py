"""Reads an offline `.wandb` file: W&B's own protobuf records in LevelDB's log format (blocks of 32 KiB, records split over them)."""

from __future__ import annotations

import json
import struct
import time
import zlib
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768
HEADER = struct.Struct("<IHB")  # checksum, length, type: 1 whole, 2 first, 3 middle, 4 last
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path: Path) -> list[Record]:
    """Every record of the file, in order. Fails on a broken checksum."""
    data = path.read_bytes()
    magic, number, version = struct.unpack("<4sHB", data[:7])
    assert (magic, number, version) == (b":W&B", 0xBEE1, 0), "not a .wandb file"
    found, part, at = [], b"", 7
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:
            at += BLOCK - at % BLOCK
            continue
        checksum, length, kind = HEADER.unpack_from(data, at)
        body = data[at + HEADER.size : at + HEADER.size + length]
        if len(body) < length:
            break  # still being written
        assert zlib.crc32(body, zlib.crc32(bytes([kind]))) == checksum, f"broken record at byte {at}"
        at += HEADER.size + length
        part = body if kind in (FULL, FIRST) else part + body
        if kind in (FULL, LAST):
            found.append(Record.FromString(part))
    return found


class OfflineRun:
    """What one offline run holds. W&B's service may write its last block a moment after the client's `finish` returns; we wait for it."""

    def __init__(self, folder: Path, wait_s: float = 20.0):
        (self.path,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
        deadline = time.monotonic() + wait_s
        while True:
            self.records = records(self.path)
            if self.of("exit") or time.monotonic() > deadline:
                break
            time.sleep(0.1)

    def of(self, kind: str) -> list:
        return [getattr(r, kind) for r in self.records if r.WhichOneof("record_type") == kind]

    @property
    def run(self):
        return self.of("run")[0]

    @property
    def config(self) -> dict:
        updates = [*self.run.config.update, *(u for c in self.of("config") for u in c.update)]
        return {u.key or ".".join(u.nested_key): json.loads(u.value_json) for u in updates}

    @property
    def history(self) -> list[dict]:
        return [{i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in h.item} for h in self.of("history")]

    @property
    def summary(self) -> dict:
        return {(u.key or ".".join(u.nested_key)): json.loads(u.value_json) for s in self.of("summary") for u in s.update}

    @property
    def artifacts(self) -> dict[str, list[str]]:
        """Artifact type: the files in it."""
        logged = [r.request.log_artifact.artifact for r in self.records if r.WhichOneof("record_type") == "request"]
        files: dict[str, list[str]] = {}
        for artifact in {a.name: a for a in [*self.of("artifact"), *logged] if a.name}.values():
            files.setdefault(artifact.type, []).extend(entry.path for entry in artifact.manifest.contents)
        return {kind: sorted(paths) for kind, paths in files.items()}

    @property
    def exit_code(self) -> int:
        return self.of("exit")[0].exit_code
