"""From raw values to rows of tables and to numbers, as training read them."""

import bisect
import functools
import hashlib
import json
import math
import re

import torch
from safetensors import safe_open

MISSING, RARE = 0, 1  # rows of a table for values that are missing, and for those that training did not know or hardly saw
GREATEST, FARTHEST = 3.4028234663852886e38, 1e9  # of numbers, before and after scaling
SPELLED = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "NaN": "", "nan": ""}


class Table:
    """An embedding table, whose rows are read where they lie in memory-mapped files."""

    def __init__(self, folder, name, about):
        self.rows, self.dim, self.shards = about["rows"], about["dim"], []
        parts = ("weight", "scale", "offset") if about["format"] == "int8" else ("weight",)
        for shard in about["shards"]:
            with safe_open(folder / shard["file"], "pt") as file:
                self.shards.append((shard["first"], [file.get_tensor(f"table.{name}.{part}") for part in parts]))

    def __getitem__(self, ids):
        """Those rows, float32 [n, D], of `ids` int64 [n]. Of int8 tables a row is code * scale + offset."""
        out = torch.empty(len(ids), self.dim)
        for first, (weight, *scale_and_offset) in self.shards:
            inside = torch.nonzero((ids >= first) & (ids < first + len(weight))).squeeze(1)
            here = ids[inside] - first
            rows = weight[here].float()
            if scale_and_offset:
                scale, offset = scale_and_offset
                rows = rows * scale[here, None] + offset[here, None]
            out[inside] = rows
        return out


class Words:
    """The words of a column, sorted by their bytes, and the row of each. They are found by bisection where they lie."""

    def __init__(self, file, name):
        self.bytes, self.ends, self.rows = (file.get_tensor(f"{name}.{part}") for part in ("bytes", "ends", "rows"))
        self.row = functools.lru_cache(1 << 18)(self._row)

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        return bytes(self.bytes[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])].tolist())

    def _row(self, word):
        """None where the word is not known."""
        at = bisect.bisect_left(self, word.encode())
        return int(self.rows[at]) if at < len(self) and self[at] == word.encode() else None


def text_of(value):
    """A cell of CSV or a value of JSON as text: true is `true`, null an empty one."""
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


def values_of(cell, separator):
    """The values of a cell that holds several: a list of JSON, or its text, in which `separator` stands between them. One at least."""
    if isinstance(cell, list):
        texts = [text_of(one) for one in cell]
    elif separator == "json":
        parts = re.findall(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\[\],\s\"'][^\[\],]*", text_of(cell))
        texts = [one for one in (part.strip().strip("\"'") for part in parts) if one != "null"]
    else:
        texts = text_of(cell).split(separator)
    return [one for one in (text.strip() for text in texts) if one] or [None]


def row_of(value, words):
    """The row of a value in a table with a row for each word. Words are spelled in one way."""
    word = word_of(value)
    row = MISSING if word is None else words.row(word)
    return RARE if row is None else row


def side_rows(value, feature, words):
    """The rows of a cell of a side column: of its values that training knew, else row 0. Of numbers the bucket."""
    if feature["edges"] is not None:
        try:
            number = float(word_of(value) or "nan")
        except ValueError:
            return [MISSING]
        return [MISSING if math.isnan(number) else 1 + bisect.bisect_right(feature["edges"], number)]
    values = values_of(value, feature["separator"]) if feature["separator"] else [value]
    known = [words[feature["words"]].row(word) for word in map(word_of, values) if word is not None]
    return [row for row in known if row is not None] or [MISSING]


def hashed_row_of(value, rows):
    """The row of a value in a table that words are hashed into."""
    word = word_of(value)
    if word is None:
        return MISSING
    digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return min(digest % max(rows - 1, 1) + 1, rows - 1)


def word_of(value):
    """One spelling of each value: 3.0 is 3, True is true, blanks around a word are no part of it. None: it is missing."""
    text = text_of(value)
    word = re.sub(r"\A[ \t]*([^ \t](?:.*[^ \t])?)[ \t]*\Z", r"\1", SPELLED.get(text, text))
    word = re.sub(r"\A(-?\d+)\.0*\Z", r"\1", word)
    return "0" if word == "-0" else word or None


def number_of(value, scale, mean, spread):
    """A number, scaled as in training. A missing one is the mean. Raises ValueError for what is none."""
    text = text_of(value).strip()
    if text in ("", "NaN", "nan"):
        return mean if scale == "none" else 0.0
    if "_" in text or not text.isascii() or not math.isfinite(number := float(text)) or abs(number) > GREATEST:
        raise ValueError(f"{text} is no number that can be read")
    if scale == "log":
        number = math.copysign(math.log1p(abs(number)), number)
    scaled = number if scale == "none" else (number - mean) / spread
    if abs(scaled) > FARTHEST:
        raise ValueError(f"{text} is too far off")
    return scaled
