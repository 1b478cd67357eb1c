"""Files that are whole or absent: written beside their place, then renamed into it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from recsys_lab.errors import UserError, unwritable


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` so that a reader sees the old file or the new one, never half of it. UserError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if mistake := unwritable(error, path):
            raise mistake from None
        raise
    return path


def write_json(path: Path, data: Any) -> Path:
    """`data` as strict JSON in the order of its keys; a figure that is not finite becomes null."""
    return write_text(path, json.dumps(plain(data), indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in `path`. UserError where it is missing, unreadable or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("no such file", where=path, remedy="name the folder of a run") from None
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=path) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"not JSON: {error}", where=path) from None


def plain(value: Any) -> Any:
    """`value` in JSON's own types: NumPy's numbers become Python's, tuples lists, NaN and infinity None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value
