"""How raw values become what the tables and the dense arch read: what serve.py must know of a run's data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsys_lab.data.interactions import known as known_items
from recsys_lab.data.interactions.histories import TIME_ROWS
from recsys_lab.data.interactions.side_columns import ITEM, SideColumn
from recsys_lab.data.table import known as known_values
from recsys_lab.data.table.prepare import feature_names
from recsys_lab.errors import UserError
from recsys_lab.tables import Table
from recsys_lab.train.tensor_file import write_tensors


@dataclass(frozen=True)
class RawInputs:
    """The columns of a raw row.

    Attributes:
        dense: of each number its column, its scale, and the mean and spread that it is scaled by.
        features: by feature its column, how its values become rows, and which words it knows.
        words: by name of words, what they are made of: words, sorted by their bytes, and the row of each.
        items: the words of the items' rows from 1 on, of a model that ranks items.
        of_items: by feature, side columns of items: ids, one item row after the other, and where those of each end.
    """

    dense: list[dict[str, Any]]
    features: dict[str, dict[str, Any]]
    words: dict[str, tuple[list[str], np.ndarray]]
    categories: np.ndarray | None = None
    history: dict[str, Any] | None = None
    of_items: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def write_words(self, file: Path) -> None:
        """The words as tensors, to be found by bisection where the file lies."""
        tensors: dict[str, torch.Tensor] = {}
        for name, (words, rows) in self.words.items():
            tensors |= _tensors_of(name, words, rows)
        if self.categories is not None:
            tensors["categories"] = torch.from_numpy(self.categories.astype(np.int64))
        for name, (ids, ends) in self.of_items.items():
            tensors |= {
                f"{name}.of_items": torch.from_numpy(ids.astype(np.int64)),
                f"{name}.item_ends": torch.from_numpy(ends.astype(np.int64)),
            }
        write_tensors(file, tensors, {"format": "pt"})


def raw_inputs(vocabulary: Path | None, read: dict[str, Table], dense_width: int) -> RawInputs:
    """What is read for the features `read`, by the vocabulary that the run kept. Without one, values are rows of the tables."""
    if vocabulary is not None and (vocabulary / known_values.META_FILE).is_file():
        return _of_table(known_values.kept(str(vocabulary)), read)
    if vocabulary is not None and (vocabulary / known_items.META_FILE).is_file():
        return _of_interactions(vocabulary, read)
    dense = [{"column": f"dense_{number}", "scale": "none", "mean": 0.0, "spread": 1.0} for number in range(dense_width)]
    features = {name: {"column": name, "ids": "row", "words": None, "many": True} for name in read}
    return RawInputs(dense, features, {})


def dense_width_of(vocabulary: Path) -> int:
    """K of data that kept their vocabulary."""
    return len(known_values.kept(str(vocabulary)).wanted.dense) if (vocabulary / known_values.META_FILE).is_file() else 0


def _of_table(known: known_values.Known, read: Iterable[str]) -> RawInputs:
    wanted = known.wanted
    dense = [
        {"column": name, "scale": wanted.scale_of(name), "mean": known.scaling[name][0], "spread": known.scaling[name][1]}
        for name in wanted.dense
    ]
    column_of = dict(zip(feature_names(wanted.categorical), wanted.categorical))
    rows_of = dict(zip(wanted.categorical, known.table_rows))
    features: dict[str, dict[str, Any]] = {}
    for feature in read:
        column = column_of[feature if feature in column_of else feature.rpartition(":")[0]]  # a slice of a table by columns
        how = (
            {"ids": "hashing", "words": None, "rows": rows_of[column]}
            if wanted.ids == "hashing"
            else {"ids": "vocabulary", "words": column}
        )
        separator = dict(wanted.lists).get(column)
        features[feature] = {"column": column, "many": separator is not None, "separator": separator, **how}
    words = {}
    for column in wanted.categorical if wanted.ids != "hashing" else ():
        values = known.values(column).sort("value")
        words[column] = (values["value"].to_list(), values["row"].to_numpy())
    return RawInputs(dense, features, words)


def _of_interactions(folder: Path, read: Iterable[str]) -> RawInputs:
    figures, items = known_items.kept(folder)
    sides = {meta["feature"]: (number, meta) for number, meta in enumerate(figures["sides"])}
    features: dict[str, dict[str, Any]] = {}
    for feature in read:
        if feature in sides:
            features[feature] = _of_side(sides[feature][1])
            continue
        of_candidate = feature.startswith("candidate")
        ids = "category" if "category" in feature else "time" if feature == "time" else "item"
        column = "time" if ids == "time" else "candidate" if of_candidate else "item"
        features[feature] = {"column": column, "ids": ids, "words": "item", "many": not of_candidate}
    if "time" in features and figures["times"] != "numbers":
        raise UserError(
            "times are served as numbers",
            where="data.time",
            given=f"{figures['times']} in the log",
            allowed="numbers",
            remedy="data.time=false",
        )
    order = sorted(range(len(items)), key=lambda i: items[i].encode())
    words = {"item": ([items[i] for i in order], np.array(order, np.int32) + 1)}
    path = folder / known_items.CATEGORIES_FILE
    categories = np.fromfile(path, np.int32) if any(one["ids"] == "category" for one in features.values()) else None
    of_items: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for number, meta in sides.values():
        if not meta["is_number"]:
            ordered = sorted(range(len(meta["known"])), key=lambda i: meta["known"][i].encode())
            words[meta["feature"]] = [meta["known"][i] for i in ordered], np.array(ordered, np.int32) + 1
        if meta["of"] == ITEM:
            side = SideColumn.load(folder, number, meta)
            of_items[meta["feature"]] = side.ids, np.arange(1, len(side.ids) + 1) if side.ends is None else side.ends
    history = {"max_length": figures["max_length"], "time_unit": figures["unit"], "time_rows": TIME_ROWS, "items": len(items)}
    return RawInputs([], features, words, categories, history, of_items)


def _of_side(meta: dict[str, Any]) -> dict[str, Any]:
    """How a side column is served: from the rows' items, or from a column of its own, a value an item or one a user."""
    column = "item" if meta["of"] == ITEM else meta["name"] if meta["name"] not in ("item", "time") else meta["feature"]
    words, edges = (None, list(meta["known"])) if meta["is_number"] else (meta["feature"], None)
    return {"column": column, "ids": f"of_{meta['of']}", "words": words, "edges": edges, "separator": meta["separator"], "many": True}


def _tensors_of(name: str, words: list[str], rows: np.ndarray) -> dict[str, torch.Tensor]:
    encoded = [word.encode() for word in words]
    ends = np.cumsum([len(word) for word in encoded], dtype=np.int64)
    text = np.frombuffer(b"".join(encoded), np.uint8).copy()
    return {
        f"{name}.bytes": torch.from_numpy(text),
        f"{name}.ends": torch.from_numpy(ends),
        f"{name}.rows": torch.from_numpy(rows.astype(np.int32)),
    }
