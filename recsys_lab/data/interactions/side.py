"""What is known of items beside who had them. It is one category each, from a JSON of attribute lists or a RecBole .item file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recsys_lab.data.stored_text import blocks, no_text
from recsys_lab.data.text import shorten
from recsys_lab.errors import UserError

_CLASSES = ("class", "category", "categories", "genre", "genres")
_ITEMS = ("item_id", "item", "movie_id", "asin")


def categories_of(path: Path, items: Sequence[str]) -> np.ndarray:
    """int32 [items + 1]: the category of item row 1, 2, ...: 1 and on by the order of their names, 0 where none is known.

    A JSON file is {item: [attribute, ...]}. A RecBole .item file has a header and a column `class`. The first one counts.
    `items` are the names of the item rows from 1 on. Of others nothing is kept. Raises UserError for a file that is neither.
    """
    text = text_of(path)
    first = (
        _first_of_lists(text, path) if text.lstrip()[:1] == "{" else _from_table(text.rstrip("\n").replace("\r\n", "\n").split("\n"), path)
    )
    named = [first.get(item) for item in items]
    known = {name: row for row, name in enumerate(sorted({n for n in named if n is not None}, key=numbers_first), 1)}
    if not known:
        raise UserError("no item of the interactions is in it", where=path, given=f"{len(first)} other items", remedy="data.category=null")
    return np.array([0, *(known[name] if name is not None else 0 for name in named)], np.int32)


def by_number(word: str) -> tuple[int, str, str]:
    """Sorts words of digits, however many, as the numbers that they are."""
    return len(word.lstrip("0")), word.lstrip("0"), word


def numbers_first(word: str) -> tuple[bool, int, str, str]:
    """Sorts words of digits as numbers, and others after them."""
    return (False, *by_number(word)) if word.isascii() and word.isdigit() else (True, 0, "", word)


def text_of(path: Path) -> str:
    """The whole file. UserError where it is no text."""
    whole = b"".join(blocks(path))
    if (wrong := no_text(whole)) is not None:
        number = next(i for i, line in enumerate(whole.split(b"\n"), 1) if no_text(line))
        raise UserError("not UTF-8 text", where=f"{path}:{number}", given=wrong)
    return whole.decode()


def attributes_of(text: str, path: Path) -> dict[str, list[str]]:
    """What a JSON file of attribute lists says of each item. UserError where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON ({error})", where=path, allowed="{item: [attribute, ...]}") from None
    for item, attributes in value.items():
        if not isinstance(attributes, list):
            raise UserError(
                "an item's attributes are no list", where=f"{path}, item {item}", given=shorten(json.dumps(attributes)), allowed="[1, 2]"
            )
    return {str(item): [str(attribute) for attribute in attributes] for item, attributes in value.items()}


def _first_of_lists(text: str, path: Path) -> dict[str, str]:
    return {item: attributes[0] for item, attributes in attributes_of(text, path).items() if attributes}


def _from_table(lines: list[str], path: Path) -> dict[str, str]:
    """Tab-separated lines under a header. Several classes are separated by blanks."""
    names = [field.rsplit(":", 1)[0].lower() for field in lines[0].split("\t")] if lines else []
    item = next((i for i, name in enumerate(names) if name in _ITEMS), None)
    kind = next((i for i, name in enumerate(names) if name in _CLASSES), None)
    if item is None or kind is None:
        raise UserError(
            "no columns for the item and its class",
            where=f"{path}:1",
            given=", ".join(names) or "nothing",
            allowed="item_id and class, or JSON",
        )
    first = {}
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise UserError(
                "too few fields" if len(fields) < len(names) else "too many fields",
                where=f"{path}:{number}",
                given=len(fields),
                allowed=len(names),
            )
        if classes := fields[kind].split():
            first[fields[item]] = classes[0]
    return first
