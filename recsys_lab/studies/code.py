"""Which code a study came out of. So a result is not made again, and an old one is known as such."""

from __future__ import annotations

import hashlib
from functools import cache

from recsys_lab.base.paths import PACKAGE
from recsys_lab.base.paths import ROOT as ROOT

FOLDERS = ("conf", "experiments", "launchers", "recsys_lab")
KINDS = {".py", ".cpp", ".yaml"}


@cache
def code_fingerprint() -> str:
    """Of every source file and config that a figure can depend on, committed or not."""
    digest = hashlib.sha256()
    for folder in FOLDERS:
        base = PACKAGE.parent if folder == PACKAGE.name else ROOT
        for path in sorted((base / folder).rglob("*")):
            if path.suffix in KINDS and path.is_file() and (base == ROOT or ROOT not in path.parents):
                digest.update(str(path.relative_to(base)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
