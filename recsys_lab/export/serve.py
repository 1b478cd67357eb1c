"""Scores raw rows with the model in this folder. It needs Python, torch and safetensors alone: an example of how to serve it.

    python serve.py < rows.csv      a header and a row a line; or JSON lines, such as {"user": "u1", "price": 3.5}

prints a line a row: the probability of a click. Of a model for the next item it prints ten of the items that the history does not
have, the likeliest first, each with its probability. In CSV a list is its values with blanks between them.
"""

import bisect
import csv
import functools
import hashlib
import itertools
import json
import math
import re
import sys
from pathlib import Path

import torch
from safetensors import safe_open

MISSING, RARE = 0, 1  # rows of a table for values that are missing, and for those that training did not know or hardly saw
GREATEST, FARTHEST = 3.4028234663852886e38, 1e9  # of numbers, before and after scaling
ROWS_AT_ONCE, ITEMS_AT_ONCE, TOP = 512, 65536, 10
SPELLED = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "NaN": "", "nan": ""}


class Table:
    """An embedding table, whose rows are read where they lie in memory-mapped files."""

    def __init__(self, folder, name, dim, shards):
        self.dim, self.parts = dim, []
        for shard in shards:
            with safe_open(folder / shard["file"], "pt") as file:
                parts = [file.get_tensor(f"table.{name}.{part}") for part in ("weight", "scale", "offset")[: 3 if "int8" in shard else 1]]
            self.parts.append((shard["first"], parts))
        self.rows = shards[-1]["first"] + shards[-1]["rows"]

    def __getitem__(self, ids):
        """int64 [n] -> float32 [n, D]. Of int8 tables a row is code * scale + offset."""
        out = torch.empty(len(ids), self.dim)
        for first, (weight, *scale_and_offset) in self.parts:
            inside = torch.nonzero((ids >= first) & (ids < first + len(weight))).squeeze(1)
            rows = weight[ids[inside] - first].float()
            if scale_and_offset:
                scale, offset = (part[ids[inside] - first, None] for part in scale_and_offset)
                rows = rows * scale + offset
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
        at = bisect.bisect_left(self, word.encode())
        return int(self.rows[at]) if at < len(self) and self[at] == word.encode() else None


def text_of(value):
    """A cell as training read it: JSON's true is `true`, null an empty one."""
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


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
    if "_" in text or not math.isfinite(number := float(text)) or abs(number) > GREATEST:
        raise ValueError(f"{text} is no number that can be read")
    if scale == "log":
        number = math.copysign(math.log1p(abs(number)), number)
    scaled = number if scale == "none" else (number - mean) / spread
    if abs(scaled) > FARTHEST:
        raise ValueError(f"{text} is too far off")
    return scaled


class Model:
    """The model of an export. `score` takes raw rows, mappings from column to value."""

    def __init__(self, folder):
        self.about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        self.dense, self.features, self.history = self.about["dense"], self.about["features"], self.about["history"]
        self.tables = {name: Table(folder, name, one["dim"], one["shards"]) for name, one in self.about["tables"].items()}
        with safe_open(folder / "vocabulary.safetensors", "pt") as file:
            self.words = {name: Words(file, name) for name in {key.rpartition(".")[0] for key in file.keys()} - {""}}
            self.categories = file.get_tensor("categories") if "categories" in file.keys() else None
        self.program = torch.export.load(folder / "dense.pt2").module()

    def score(self, rows):
        """Of each row the probability of a click; for the next item a list of [item, probability]."""
        with torch.no_grad():
            ids = {name: [self.ids(row, feature) for row in rows] for name, feature in self.features.items()}
            outputs = self.outputs(rows, ids)
            if self.about["objective"] == "next_item":
                return self.next_items(outputs, [set(self.items(row["item"])) for row in rows])
            return outputs.double().sigmoid().tolist()

    def outputs(self, rows, ids):
        """Logits [B] of rows, from the rows of the tables that they mean; for the next item [B, D]."""
        dense = [[number_of(row[one["column"]], one["scale"], one["mean"], one["spread"]) for one in self.dense] for row in rows]
        vectors, lengths = {}, {}
        for name, of_rows in ids.items():
            table = self.tables[self.features[name]["table"]]
            counts = torch.tensor([len(one) for one in of_rows])
            found = table[torch.tensor([i % table.rows for one in of_rows for i in one], dtype=torch.int64)]
            bag = torch.repeat_interleave(torch.arange(len(rows)), counts)
            pooling = self.features[name]["pooling"]
            if pooling == "none":
                place = torch.arange(len(bag)) - (counts.cumsum(0) - counts)[bag]
                vectors[name] = torch.zeros(len(rows), max(1, int(counts.max())), table.dim).index_put((bag, place), found)
                lengths[name] = counts
            else:
                vectors[name] = torch.zeros(len(rows), table.dim).index_add(0, bag, found)
                vectors[name] /= counts.clamp(min=1)[:, None] if pooling == "mean" else 1
        return self.program(torch.tensor(dense, dtype=torch.float64).float() if self.dense else None, vectors, lengths)

    def ids(self, row, feature):
        """The rows of the feature's table that a raw row means."""
        value, how = row[feature["column"]], feature["ids"]
        if not feature["many"] and isinstance(value, list | dict):
            raise ValueError(f"{feature['column']} is one value, not several")
        if how == "row":
            return [int(one) for one in (value if isinstance(value, list) else text_of(value).split())]
        if how in ("vocabulary", "hashing"):
            word = word_of(value)
            if word is None:
                return [MISSING]
            if how == "vocabulary":
                found = self.words[feature["words"]].row(word)
                return [RARE if found is None else found]
            digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
            return [min(digest % max(feature["rows"] - 1, 1) + 1, feature["rows"] - 1)]
        items = self.items(row["candidate" if feature["column"] == "candidate" else "item"], feature["many"])
        if how == "time":
            items = self.gaps(row["time"])
        return [int(self.categories[i]) for i in items[-self.history["max_length"] :]] if how == "category" else items[-self.history["max_length"] :]

    def items(self, value, many=True):
        """Rows of items. Of a history those that training did not know are left out."""
        names = value if isinstance(value, list) else text_of(value).split() if many else [value]
        rows = [self.words["item"].row(text_of(name)) for name in names]
        if not many and None in rows:
            raise ValueError(f"item {value} is not known")
        return [row for row in rows if row is not None]

    def gaps(self, value):
        """Rows of the time table: 0 before the first item, 1 for no time between, else 2 + log2 of the gap."""
        times = [float(one) for one in (value if isinstance(value, list) else value.split())]
        gaps = [(after - before) / self.history["time_unit"] for before, after in itertools.pairwise(times)]
        return [0, *(1 if gap < 1 else min(2 + int(math.log2(gap)), self.history["time_rows"] - 1) for gap in gaps)][: len(times)]

    def next_items(self, users, seen):
        """The likeliest items that each user [D] has not had, with their probabilities. A few items of the table at a time."""
        items, table = self.history["items"], self.tables[self.features["item"]["table"]]
        best = torch.full((len(users), 0), 0.0), torch.full((len(users), 0), 0)
        for first in range(1, items + 1, ITEMS_AT_ONCE):
            ids = torch.arange(first, min(first + ITEMS_AT_ONCE, items + 1))
            scores = users @ table[ids % table.rows].T
            for user, own in enumerate(seen):
                scores[user, [i - first for i in own if first <= i < first + len(ids)]] = -math.inf
            both = torch.cat([best[0], scores], 1), torch.cat([best[1], ids.expand(len(users), -1)], 1)
            top = both[0].topk(min(TOP, both[0].shape[1]))
            best = top.values, both[1].gather(1, top.indices)
        names = {int(row): i for i, row in enumerate(self.words["item"].rows.tolist())}
        return [
            [[self.words["item"][names[i]].decode(), p] for i, p in zip(ids, scores.double().sigmoid().tolist()) if p > 0]
            for ids, scores in zip(best[1].tolist(), best[0])
        ]


def rows_in(lines):
    """Raw rows of JSON lines, or of CSV with a header."""
    first = next(lines, "").removeprefix("\ufeff")
    if first.lstrip().startswith("{"):
        yield from (json.loads(line) for line in itertools.chain([first], lines) if line.strip())
        return
    separator = max(",\t;|", key=first.count)
    reader = csv.reader(itertools.chain([first], lines), delimiter=separator, strict=True)
    names = [name.strip(" \t") for name in next(reader, [])]
    for fields in reader:
        if len(fields) != len(names):
            raise ValueError(f"{len(fields)} fields, {len(names)} in the header")
        yield dict(zip(names, fields))


def main(folder):
    model, number, rows = Model(folder), 0, rows_in(sys.stdin)
    try:
        while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
            for score in model.score(batch):
                print(json.dumps(score, ensure_ascii=False))
            number += len(batch)
    except KeyError as error:
        sys.exit(f"error: a row after row {number} has no column {error}")
    except (ValueError, csv.Error) as error:
        sys.exit(f"error: after row {number}: {error}")


if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
