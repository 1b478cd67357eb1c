"""Tables of clicks drawn from a known truth, and written as people write them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.table import open_table
from tests.data.random_logs import QUOTABLE, line, names_of, put
from tests.data.test_table import options

ROWS = 120
NUMBERS = ["plain", "missing", "NA", "exponent", "negative", "comma", "thousands", "all thousands", "euro", "dollar", "percent", "count"]
LISTS = ["|", "^", ";", ",", " ", "json"]
CATEGORIES = ["digits", "small", "words", "hex", "zeros", "accents", "titles", "flags", "missing", "integers with a point"]
ODD = ["index", "rounded", "date", "hour", "epoch"]


@dataclass
class Column:
    """What the cells say, and how they are written. A value is a number, a word, a list of words, or None."""

    kind: str
    values: list
    cells: list[str]


@dataclass
class Table:
    root: Path
    columns: dict[str, Column]
    labels: list[int]
    options: dict = field(default_factory=dict)
    may_refuse: list[str] = field(default_factory=list)
    told: dict = field(default_factory=dict)


def number(random: np.random.Generator, kind: str) -> Column:
    small, large = random.integers(0, 100, ROWS), np.exp(random.uniform(0, 15, ROWS)).astype(int)
    if kind == "count":
        values = np.floor(np.exp(random.normal(2, 1.7, ROWS))).tolist()
        return Column("number: count", values, [f"{int(value)}" for value in values])
    if kind in ("plain", "missing", "NA", "exponent", "negative", "comma", "dollar", "percent"):
        values = [round(float(a + b / 1000), 2) for a, b in zip(small, random.integers(1, 999, ROWS))]
    else:
        values = [float(a) for a in large] if "thousands" in kind else [a + b / 100 for a, b in zip(large.tolist(), small.tolist())]
    if kind == "negative":
        values = [value - 50 for value in values]
    if kind == "all thousands":
        values = [value + 1000 for value in values]
    written = {
        "plain": str, "missing": str, "NA": str, "negative": str, "exponent": lambda value: f"{value:.6e}",
        "comma": lambda value: f"{value:.2f}".replace(".", ","),
        "thousands": lambda value: f"{value:,.0f}", "all thousands": lambda value: f"{value:,.0f}",
        "euro": lambda value: f"{value:,.2f}".translate({44: ".", 46: ","}),
        "dollar": lambda value: f"${value:,.2f}", "percent": lambda value: f"{value:.2f}%",
    }[kind]  # fmt: skip
    cells = [written(value) for value in values]
    if kind in ("missing", "NA"):
        holes = random.random(ROWS) < 0.1
        values = [None if hole else value for hole, value in zip(holes, values)]
        cells = [kind.replace("missing", "") if hole else cell for hole, cell in zip(holes, cells)]
    return Column(f"number: {kind}", values, cells)


def category(random: np.random.Generator, kind: str) -> Column:
    if kind == "flags":
        values = random.choice(["true", "false"], ROWS).tolist()
        return Column("category", values, [{"true": "True", "false": "False"}[value] for value in values])
    plain = {"missing": "words", "integers with a point": "small"}.get(kind, kind)
    holes = random.random(ROWS) < 0.1 * (kind == "missing")
    values = [None if hole else str(name) for name, hole in zip(random.choice(names_of(random, plain, 12, "c"), ROWS), holes)]
    cells = ["" if value is None else f"{value}.0" if kind == "integers with a point" else value for value in values]
    return Column("category", values, cells)


def lists(random: np.random.Generator, separator: str) -> Column:
    names = names_of(random, "words", 9, "t")
    values = [random.choice(names, random.integers(0, 5)).tolist() for _ in range(ROWS)]
    cells = [json.dumps(one) if separator == "json" else separator.join(one) for one in values]
    return Column(f"list: {separator}", values, cells)


def odd(random: np.random.Generator, kind: str) -> Column:
    moments = 1_500_000_000 + random.integers(0, 10**7, ROWS)
    cells = {
        "index": lambda: list(map(str, range(ROWS))),
        "rounded": lambda: [f"{float(2**60 + n * 10**4)!r}" for n in random.integers(0, 20, ROWS).tolist()],
        "date": lambda: [str(np.datetime64(int(n), "s").astype("datetime64[D]")) for n in moments],
        "hour": lambda: [str(np.datetime64(int(n), "s").item().strftime("%y%m%d%H")) for n in moments],
        "epoch": lambda: [str(n) for n in moments],
    }[kind]()
    return Column(f"odd: {kind}", cells, cells)


def drawn_columns(random: np.random.Generator) -> dict[str, Column]:
    columns = {"user": category(random, str(random.choice(CATEGORIES)))}
    for place in range(int(random.integers(1, 5))):
        part = random.random()
        if part < 0.35:
            columns[f"price{place}"] = number(random, str(random.choice(NUMBERS)))
        elif part < 0.6:
            columns[f"tags{place}"] = lists(random, str(random.choice(LISTS)))
        elif part < 0.85:
            columns[f"kind{place}"] = category(random, str(random.choice(CATEGORIES)))
        else:
            kind = str(random.choice(ODD))
            columns[{"index": "Unnamed: 0", "epoch": f"time{place}"}.get(kind, f"odd{place}")] = odd(random, kind)
    return columns


def table_file(random: np.random.Generator, root: Path) -> Table:
    """A table in a folder of its own."""
    columns = drawn_columns(random)
    labels = random.integers(0, 2, ROWS).tolist()
    words = [("0", "1"), ("false", "true"), ("0.0", "1.0"), ("False", "True")][random.integers(4)]
    written = {"label": [words[one] for one in labels]} | {name: column.cells for name, column in columns.items()}
    names = random.permutation(list(written)).tolist()
    layout = str(random.choice(["csv"] * 6 + ["parquet", "parts", "hive", "parquet parts", "splits"]))
    chosen, may_refuse = {"dense_scale": "none", "min_count": 1}, []
    keys = {name: column.kind[6:] for name, column in columns.items() if column.kind.startswith("list: ")}
    if keys and random.random() < 0.5:
        chosen["lists"] = keys
    may_refuse += ["a word beyond the first part"] if any(column.kind == "number: NA" for column in columns.values()) else []
    may_refuse += ["ids in floats"] if any(column.kind == "odd: rounded" for column in columns.values()) else []
    signs = {"thousands": ".", "all thousands": ".", "dollar": ".", "percent": ".", "comma": ",", "euro": ","}
    written_out = {name: sign for name, column in columns.items() if (sign := signs.get(column.kind.removeprefix("number: ")))}
    if written_out and random.random() < 0.5:
        chosen["decimal"] = written_out
    told = {"layout": layout, "kinds": {name: column.kind for name, column in columns.items()}, "options": chosen}
    if "parquet" in layout:
        _write_parquet(pl.DataFrame({name: written[name] for name in names}), root, 2 if "parts" in layout else 1)
        return Table(root, columns, labels, chosen, may_refuse, told)
    separator = str(random.choice([",", ",", ";", "|", "\t", "\x01", "::", " "]))
    quotes = str(random.choice(["needed", "all"])) if separator in QUOTABLE else "none"
    if any(separator in cell or separator == " " and not cell for name in names for cell in written[name]) and quotes == "none":
        may_refuse.append("separators in fields")
    if any(separator in name for name in names):
        may_refuse.append("a separator in a name")
    encoding = str(random.choice(["utf-8"] * 6 + ["utf-8-sig", "latin-1", "utf-16"]))
    may_refuse += [encoding] if encoding in ("latin-1", "utf-16") else []
    bare = layout == "csv" and random.random() < 0.2
    if bare:
        chosen["columns"] = names
    preamble = [f"sep={separator}"] if random.random() < 0.1 and len(separator) == 1 else []
    end, suffix = str(random.choice(["\n", "\r\n"])), str(random.choice([".csv", ".tsv", ".csv.gz"]))

    def file(path: str, first: int, last: int, own: list[str]) -> None:
        rows = [[written[name][row] for name in own] for row in range(first, last)]
        head = [] if bare else [own]
        text = end.join([*preamble, *(line(fields, separator, quotes) for fields in [*head, *rows])]) + end
        put(root / f"{path}{suffix}", text.encode(encoding))

    if layout == "parts":
        file("part-0", 0, 50, names), file("part-1", 50, ROWS, names[::-1])
    elif layout == "hive":
        file("day=1/part-0", 0, 50, names), file("day=2/part-0", 50, ROWS, names)
        columns["day"] = Column("category", ["1"] * 50 + ["2"] * (ROWS - 50), [])
    elif layout == "splits":
        file("train", 0, 80, names), file("valid", 80, 100, names[::-1]), file("test", 100, ROWS, names)
    else:
        file("clicks", 0, ROWS, names)
    told |= {"separator": separator, "quotes": quotes, "encoding": encoding, "bare": bare, "end": end, "suffix": suffix, "before": preamble}
    return Table(root, columns, labels, chosen, may_refuse, told)


def _write_parquet(frame: pl.DataFrame, root: Path, parts: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for number in range(parts):
        frame[number * ROWS // parts : (number + 1) * ROWS // parts].write_parquet(root / f"part-{number}.parquet")


def read(drawn: Table) -> OpenDataSet:
    return open_table(**options(drawn.root, label="label", split_column=None) | {"dense": None, "categorical": None} | drawn.options)


def wrong(drawn: Table, data: OpenDataSet) -> list[str]:
    """What was read and is not the truth, and has no note that names its column."""
    sizes = [data.splits[split].rows for split in ("train", "validation", "test")]
    blocks = [data.splits[split].read(np.arange(size)) for split, size in zip(("train", "validation", "test"), sizes)]
    found = []
    if np.concatenate([block.labels for block in blocks]).tolist() != drawn.labels:
        return ["labels"]
    said = next(note for note in data.notes if note.startswith("taken for numbers: "))
    dense = said.removeprefix("taken for numbers: ").split("; ")[0].split(", ")
    named = " ".join(note for note in data.notes if note.startswith("check these columns"))
    features = [feature.name for feature in data.features]
    for name, column in drawn.columns.items():
        own = "".join(sign if sign.isalnum() or sign == "_" else "_" for sign in name)
        noted = re.search(rf"(?<!\w){name}(?!\w)", named) is not None
        if name in dense:
            cells = np.concatenate([block.dense[:, dense.index(name)] for block in blocks])
            right = is_number(column, cells, sizes[0])
        elif own in features:
            ids = np.concatenate([of_feature(block, features.index(own)) for block in blocks])
            lengths = np.concatenate([block.lengths[features.index(own)] for block in blocks])
            right = is_category(column, ids, lengths, sizes[0], name in (drawn.options.get("lists") or {}))
        else:
            right = False
        if not right and not noted:
            found.append(f"{name} ({column.kind})")
    return found


def of_feature(block, feature: int) -> np.ndarray:
    ends = np.cumsum(block.lengths.sum(axis=1))
    return block.ids[ends[feature] - block.lengths[feature].sum() : ends[feature]]


def is_number(column: Column, cells: np.ndarray, train: int) -> bool:
    if not column.kind.startswith("number"):
        return False
    known = np.array([np.nan if value is None else value for value in column.values])
    if column.kind == "number: count":
        known = np.log1p(known)
        known = (known - known[:train].mean()) / known[:train].std()
    mean = np.nanmean(known[:train])
    return bool(np.allclose(np.where(np.isnan(known), mean, known), cells, rtol=1e-5))


def is_category(column: Column, ids: np.ndarray, lengths: np.ndarray, train: int, as_list: bool) -> bool:
    """Whether equal values have one row and others another; those that train lacks row 1, and missing ones row 0."""
    if not (column.kind == "category" or as_list):
        return False
    values = [one or [None] for one in column.values] if as_list else [[value] for value in column.values]
    if [len(one) for one in values] != lengths.tolist():
        return False
    flat, of_train = [value for one in values for value in one], sum(lengths[:train])
    rows: dict = {None: 0}
    for value, row in zip(flat[:of_train], ids[:of_train].tolist()):
        if rows.setdefault(value, row) != row:
            return False
    return len(set(rows.values())) == len(rows) and [rows.get(value, 1) for value in flat[of_train:]] == ids[of_train:].tolist()
