"""What a run knows of its items: their rows, categories and side columns, and the unit of gaps of time. Kept for rows to come."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_lab.base.files import read_json, write_json
from recsys_lab.data.interactions.side_columns import ITEM, side_files
from recsys_lab.data.interactions.times import KINDS as TIMES
from recsys_lab.errors import UserError

META_FILE, ITEMS_FILE, CATEGORIES_FILE = "interactions.json", "items.txt", "categories.bin"


def keep(prepared: Path, meta: Mapping[str, Any], max_length: int, folder: Path) -> None:
    """Copies what prepared histories know of items into `folder`. Item row 1 is the first line of items.txt."""
    folder.mkdir(exist_ok=True)
    for name in (ITEMS_FILE, CATEGORIES_FILE):
        if (prepared / name).is_file():
            shutil.copyfile(prepared / name, folder / name)
    times, sides = meta["options"]["layout"]["times"], meta.get("sides", [])
    for number, side in enumerate(sides):
        for path in side_files(prepared, number) if side["of"] == ITEM else ():
            shutil.copyfile(path, folder / path.name)
    write_json(folder / META_FILE, {"max_length": max_length, "times": times, "unit": TIMES[times].unit, "sides": sides})


def kept(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The figures that `keep` left in `folder`, and the items. Raises UserError where they are not there."""
    figures = read_json(folder / META_FILE)
    try:
        known = {"max_length": int(figures["max_length"]), "times": str(figures["times"]), "unit": int(figures["unit"])}
        known["sides"] = list(figures.get("sides", []))
        return known, items_of(folder)
    except (LookupError, TypeError, ValueError, OSError) as error:
        raise UserError(f"no items that can be read ({type(error).__name__})", where=folder, remedy="copy the whole run folder") from None


def items_of(folder: Path) -> list[str]:
    """The words of the items, from item row 1 on."""
    return (folder / ITEMS_FILE).read_text(encoding="utf-8").split("\n")[:-1]
