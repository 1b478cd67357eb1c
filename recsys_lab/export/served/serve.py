"""Scores raw rows with the model in this folder. It needs Python, torch and safetensors alone: an example of how to serve it.

    python serve.py < rows.csv      a header and a row a line; or JSON lines, such as {"user": "u1", "price": 3.5}

prints a line a row: the probability of a click. Of a model for the next item it prints ten of the items that the history does not
have, the likeliest first, each with its probability. In CSV a history is its items with blanks between them.
"""

import csv
import itertools
import json
import math
import sys
from pathlib import Path

import torch
from lookup import Table, Words, hashed_row_of, number_of, row_of, side_rows, text_of, values_of  # type: ignore[import-not-found]  # in this folder
from safetensors import safe_open

SIDES = ("of_event", "of_item", "of_user")  # side columns
ROWS_AT_ONCE, ITEMS_AT_ONCE, TOP = 512, 65536, 10


class Model:
    """The model of an export. `score` takes raw rows, mappings from column to value."""

    def __init__(self, folder):
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        self.objective, self.dense, self.features, self.history = (about[key] for key in ("objective", "dense", "features", "history"))
        self.normalised_items, self.softmax = about["normalised_items"], about["softmax"]
        self.tables = {name: Table(folder, name, one) for name, one in about["tables"].items()}
        with safe_open(folder / "vocabulary.safetensors", "pt") as file:
            self.words = {name: Words(file, name) for name in about["words"]}
            self.categories = file.get_tensor("categories").tolist() if "categories" in file.keys() else []
            names = [name.removesuffix(".of_items") for name in file.keys() if name.endswith(".of_items")]
            self.of_items = {name: (file.get_tensor(f"{name}.of_items"), file.get_tensor(f"{name}.item_ends")) for name in names}
        self.program = torch.export.load(folder / "dense.pt2").module()

    @torch.no_grad()
    def score(self, rows):
        """Of each row the probability of a click; for the next item a list of [item, probability]."""
        output = self.program(self.numbers(rows), *self.vectors(rows))
        return self.next_items(output, rows) if self.objective == "next_item" else output.double().sigmoid().tolist()

    def numbers(self, rows):
        """float32 [B, K]; None of a model without numbers."""
        values = [[number_of(row[one["column"]], one["scale"], one["mean"], one["spread"]) for one in self.dense] for row in rows]
        return torch.tensor(values, dtype=torch.float64).float() if self.dense else None

    def vectors(self, rows):
        """By feature what the tables give: [B, D] where they pool; else [B, T, D], padded at the end, and lengths [B]."""
        vectors, lengths = {}, {}
        for name, feature in self.features.items():
            table = self.tables[feature["table"]]
            if feature["ids"] in SIDES:
                ids = [self.cells(name, row, feature) for row in rows]
                looked_up = means(table, [cell for own in ids for cell in own])
            else:
                ids = [self.ids(row, feature) for row in rows]
                looked_up = table[torch.tensor([i % table.rows for own in ids for i in own], dtype=torch.int64)]
            counts = torch.tensor([len(own) for own in ids])
            row = torch.repeat_interleave(torch.arange(len(rows)), counts)
            if feature["pooling"] == "none":
                place = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
                vectors[name] = torch.zeros(len(rows), max(1, int(counts.max())), table.dim).index_put((row, place), looked_up)
                lengths[name] = counts
            else:
                vectors[name] = torch.zeros(len(rows), table.dim).index_add(0, row, looked_up)
                vectors[name] /= counts.clamp(min=1)[:, None] if feature["pooling"] == "mean" else 1
        return vectors, lengths

    def ids(self, row, feature):
        """The rows of the feature's table that a raw row means."""
        value, how = row[feature["column"]], feature["ids"]
        if not feature["many"] and isinstance(value, list | dict):
            raise ValueError(f"{feature['column']} is one value, not several")
        if how in ("vocabulary", "hashing"):
            values = values_of(value, feature["separator"]) if feature["many"] else [value]
            if how == "hashing":
                return [hashed_row_of(one, feature["rows"]) for one in values]
            return [row_of(one, self.words[feature["words"]]) for one in values]
        if how == "row":
            return [int(one) for one in listed(value)]
        items = self.items(row["item" if how == "time" else feature["column"]], feature["many"])
        own = self.gaps(row["time"]) if how == "time" else items
        if len(own) != len(items):
            raise ValueError("a time is needed for each item")
        own = [of for of, item in zip(own, items) if item is not None][-self.history["max_length"] :]
        return [self.categories[item] for item in own] if how == "category" else own

    def cells(self, name, row, feature):
        """Of a side column the rows of its table: a list for each item of the history, or one of a user."""
        if feature["ids"] == "of_user":
            return [side_rows(row[feature["column"]], feature, self.words)]
        items = self.items(row["item"])
        if feature["ids"] == "of_item":
            ids, ends = self.of_items[name]
            own = [item and ids[int(ends[item - 1]) : int(ends[item])].tolist() for item in items]
        else:
            own = [side_rows(value, feature, self.words) for value in listed(row[feature["column"]])]
        if len(own) != len(items):
            raise ValueError(f"a {feature['column']} is needed for each item")
        return [of for of, item in zip(own, items) if item is not None][-self.history["max_length"] :]

    def items(self, value, many=True):
        """Rows of items. Of a history those that training did not know are None, and are left out."""
        rows = [self.words["item"].row(text_of(name)) for name in (listed(value) if many else [value])]
        if not many and None in rows:
            raise ValueError(f"item {value} is not known")
        return rows

    def gaps(self, value):
        """Rows of the time table: 0 before the first item, 1 for no time between, else 2 + log2 of the gap."""
        times = [float(time) / self.history["time_unit"] for time in listed(value)]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        return [0, *(1 if gap < 1 else min(2 + int(math.log2(gap)), self.history["time_rows"] - 1) for gap in gaps)][: len(times)]

    def next_items(self, users, rows):
        """The likeliest items that each user [B, D] has not had. A few items of the table at a time.

        Their probabilities add up to one over all of these items, or by the binary loss each is an item's own.
        """
        table, words, last = self.tables[self.features["item"]["table"]], self.words["item"], self.history["items"]
        scores, items = torch.empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.int64)
        total = torch.full((len(rows), 1), -math.inf)  # log of the sum of exp
        seen = [set(self.items(row["item"])) - {None} for row in rows]
        for first in range(1, last + 1, ITEMS_AT_ONCE):
            ids = torch.arange(first, min(first + ITEMS_AT_ONCE, last + 1))
            vectors = table[ids % table.rows]
            own = users @ (torch.nn.functional.normalize(vectors, dim=1) if self.normalised_items else vectors).T
            for user, had in enumerate(seen):
                own[user, [item - first for item in had if first <= item < first + len(ids)]] = -math.inf
            total = torch.logaddexp(total, own.logsumexp(1, keepdim=True))
            scores, items = torch.cat([scores, own], 1), torch.cat([items, ids.expand(len(rows), -1)], 1)
            scores, best = scores.topk(min(TOP, scores.shape[1]))
            items = items.gather(1, best)
        place = torch.empty(last + 1, dtype=torch.int64).index_put((words.rows.long(),), torch.arange(last))
        names = [[words[place[item]].decode() for item in own] for own in items]
        probabilities = (scores.double() - total.double()).exp() if self.softmax else scores.double().sigmoid()
        return [[pair for pair in zip(*both) if pair[1] > 0] for both in zip(names, probabilities.tolist())]


def means(table, cells):
    """[n, D]: of each cell the mean of its rows. Each has one at least."""
    counts = torch.tensor([len(cell) for cell in cells], dtype=torch.int64)
    rows = table[torch.tensor([i % table.rows for cell in cells for i in cell], dtype=torch.int64)]
    owner = torch.repeat_interleave(torch.arange(len(cells)), counts)
    return torch.zeros(len(cells), table.dim).index_add(0, owner, rows) / counts[:, None]


def listed(value):
    """A list of JSON, or what a cell of CSV has between blanks."""
    return value if isinstance(value, list) else text_of(value).split()


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
