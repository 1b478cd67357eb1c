"""Cases of a table of clicks and of a log of interactions: columns of other types, rows of other shapes, keys that do not fit them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from experiments.reliability.hostile import DOCUMENTED, REFUSED, Case

QUICK = ("mode=plan", "logger=none", "data.cache={here}/cache")
TABLE = (*QUICK, "data=table", "data.label=label", "data.root={here}")
LOG = (*QUICK, "data=interactions", "data.root={here}", "data.pooling=sum", "data.objective=click")
ROWS = 400
#: A column of a Parquet file beside a label and a category.
COLUMNS: dict[str, Callable[[], pl.Series]] = {
    "lists": lambda: pl.Series([[1, 2]] * ROWS),
    "lists of nothing": lambda: pl.Series([[]] * ROWS, dtype=pl.List(pl.Int64)),
    "records": lambda: pl.Series([{"a": 1}] * ROWS),
    "bytes": lambda: pl.Series([b"\xff\x00"] * ROWS),
    "days": lambda: pl.Series([datetime.date(2020, 1, 1)] * ROWS),
    "times": lambda: pl.Series([datetime.datetime(2020, 1, 1, 2, 3)] * ROWS),
    "durations": lambda: pl.Series([datetime.timedelta(seconds=5)] * ROWS),
    "decimals": lambda: pl.Series(["1.25"] * ROWS).cast(pl.Decimal(10, 2)),
    "categories": lambda: pl.Series(["a", "b"] * (ROWS // 2), dtype=pl.Categorical),
    "truth": lambda: pl.Series([True, False] * (ROWS // 2)),
    "nothing": lambda: pl.Series([None] * ROWS),
    "empty text": lambda: pl.Series([""] * ROWS),
    "one value": lambda: pl.Series(["x"] * ROWS),
    "another value each": lambda: pl.Series([f"v{i}" for i in range(ROWS)]),
    "long text": lambda: pl.Series(["x" * 100_000] * ROWS),
    "new lines": lambda: pl.Series(["a\nb", 'c"d'] * (ROWS // 2)),
    "zeros inside": lambda: pl.Series(["a\0b", "c\0"] * (ROWS // 2)),
    "letters of all kinds": lambda: pl.Series(["é🙂", "\u202e"] * (ROWS // 2)),
    "infinities": lambda: pl.Series([float("inf"), 1.5] * (ROWS // 2)),
    "nan": lambda: pl.Series([float("nan"), 1.5] * (ROWS // 2)),
    "huge numbers": lambda: pl.Series([1e300, -1e300] * (ROWS // 2)),
    "large whole numbers": lambda: pl.Series([2**63 - 1, -(2**63)] * (ROWS // 2)),
    "small whole numbers": lambda: pl.Series([1, 2] * (ROWS // 2), dtype=pl.Int8),
}
LABELS: dict[str, list[Any]] = {
    "all 1": [1],
    "all 0": [0],
    "0.0 and 1.0": [0.0, 1.0],
    "truth": [True, False],
    "words of truth": ["true", "FALSE"],
    "0 and 2": [0, 2],
    "nothing": [None, 1],
    "nan": [float("nan"), 1.0],
    "words": ["yes", "no"],
    "days": [datetime.date(2020, 1, 1)],
    "lists": [[1], [0]],
    "shares": [0.5, 0.25],
    "large": [2**62, 1],
}
#: Whole texts of clicks.csv.
TEXTS: dict[str, str] = {
    "a header alone": "label,user\n",
    "one row": "label,user\n1,a\n",
    "two rows": "label,user\n1,a\n0,b\n",
    "three rows": "label,user\n1,a\n0,b\n1,a\n",
    "no category": "label\n" + "1\n0\n" * 50,
    "carriage returns alone": "label,user\r" + "1,a\r0,b\r" * 50,
    "semicolons": "label;user\n" + "1;a\n0;b\n" * 50,
    "blanks": "label user\n" + "1 a\n0 b\n" * 50,
    "a comma at each end": "label,user,\n" + "1,a,\n0,b,\n" * 50,
    "blank lines": "label,user\n\n\n" + "1,a\n\n0,b\n" * 50,
    "a field over two lines": "label,user\n" + '1,"a\nb"\n0,b\n' * 50,
    "a quote in a field": "label,user\n" + '1,a"b\n0,b\n' * 50,
    "quotes around all": '"label","user"\n' + '"1","a"\n"0","b"\n' * 50,
    "a comment": "# clicks\nlabel,user\n" + "1,a\n0,b\n" * 50,
    "a name of 10000 letters": f"label,{'u' * 10_000}\n" + "1,a\n0,b\n" * 50,
    "500 columns": ",".join(["label", *(f"c{i}" for i in range(500))]) + "\n" + ("1" + ",a" * 500 + "\n" + "0" + ",b" * 500 + "\n") * 20,
    "the label last row missing": "label,user\n" + "1,a\n0,b\n" * 50 + ",a\n",
    "a zero byte": "label,user\n" + "1,a\n0,b\0\n" * 50,
    "names in capitals": "LABEL,USER\n" + "1,a\n0,b\n" * 50,
    "a name with a point": "label,model.user\n" + "1,a\n0,b\n" * 50,
    "a name of ours": "label,_target_\n" + "1,a\n0,b\n" * 50,
    "a formula for a name": "label,=1+1\n" + "1,a\n0,b\n" * 50,
    "names that differ in case": "label,user,USER\n" + "1,a,b\n0,b,a\n" * 50,
    "a name with markup": "label,<b>[bold]x</b>\n" + "1,a\n0,b\n" * 50,
}
#: Keys of data=table that a table of label, price, user, item and part may not have.
KEYS = (
    "data.label=nope",
    "data.label=price",
    "data.dense=[label]",
    "data.dense=[nope]",
    "data.dense=[user]",
    "data.dense=[price,price]",
    "data.categorical=[label]",
    "data.categorical=[user,user]",
    "data.categorical=[]",
    "data.dense=[price] data.categorical=[price]",
    "data.drop=[label]",
    "data.drop=[nope]",
    "data.drop=[user,item,part,price]",
    "data.drop=[user] data.categorical=[user]",
    "data.split_column=label",
    "data.split_column=nope",
    "data.split_column=user",
    "data.split_column=part",
    "data.split_column=part data.file=clicks.csv data.validation_share=0.5",
    "data.validation_share=0 data.test_share=0",
    "data.validation_share=0.9 data.test_share=0.9",
    "data.validation_share=0.999 data.test_share=0",
    "data.validation_share=0.0001 data.test_share=0.0001",
    "data.min_count=1000000",
    "data.ids=hashing data.rows_per_table=1",
    "data.file=nope.csv",
    "data.file=../clicks.csv",
    "data.file=/etc/passwd",
    "data.file=''",
    "data.splits.train=clicks.csv data.splits.validation=clicks.csv",
    "data.splits.validation=clicks.csv",
    "data.splits.train=nope",
    "data.batch_size=1000000",
    "model.embedding_dim=1",
    "data.held_out=random data.validation_share=0.001",
)
#: Whole texts of log.inter.
LOGS: dict[str, str] = {
    "as it is": "".join(f"{u}\t{i}\t5\t{100 * u + i}\n" for u in range(30) for i in range(6)),
    "names": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    + "".join(f"{u}\t{i}\t5\t{i}\n" for u in range(30) for i in range(6)),
    "names of nothing": "a\tb\tc\td\n" + "1\t2\t3\t4\n" * 50,
    "one user": "".join(f"1\t{i}\t5\t{i}\n" for i in range(60)),
    "one item": "".join(f"{u}\t1\t5\t{t}\n" for u in range(30) for t in range(3)),
    "one each": "".join(f"{u}\t{u}\t5\t1\n" for u in range(60)),
    "two each": "".join(f"{u}\t{i}\t5\t{i}\n" for u in range(30) for i in range(2)),
    "the same moment": "".join(f"{u}\t{i}\t5\t7\n" for u in range(30) for i in range(6)),
    "negative times": "".join(f"{u}\t{i}\t5\t{-i}\n" for u in range(30) for i in range(6)),
    "huge times": "".join(f"{u}\t{i}\t5\t{10**30 + i}\n" for u in range(30) for i in range(6)),
    "times with a point": "".join(f"{u}\t{i}\t5\t{i}.5\n" for u in range(30) for i in range(6)),
    "nan for a time": "".join(f"{u}\t{i}\t5\tnan\n" for u in range(30) for i in range(6)),
    "words for a time": "".join(f"{u}\t{i}\t5\tx\n" for u in range(30) for i in range(6)),
    "words for users": "".join(f"u{u}\ti{i}\t5\t{i}\n" for u in range(30) for i in range(6)),
    "no users": "".join(f"\t{i}\t5\t{i}\n" for i in range(60)),
    "two columns": "".join(f"{u}\t{i}\n" for u in range(30) for i in range(6)),
    "one column": "1\n" * 60,
    "sequences": "".join(f"{u} 1 2 3 4 5\n" for u in range(1, 30)),
    "a sequence of nothing": "1 1 2 3 4\n2\n3 1 2 3\n",
    "large ids": "".join(f"{2**62 + u}\t{2**63 + i}\t5\t{i}\n" for u in range(30) for i in range(6)),
    "negative ids": "".join(f"{-u}\t{-i}\t5\t{i}\n" for u in range(30) for i in range(6)),
    "lines of two shapes": "1\t2\t3\t4\n1 2 3 4\n" * 30,
    "a blank line": "1\t2\t3\t4\n\n" * 30,
    "empty": "",
    "half a line": "1\t2\t3\t4\n" * 30 + "1\t2",
}
LOG_KEYS = (
    "data.format=sequences",
    "data.format=nope",
    "data.columns=[user]",
    "data.columns=[item,user]",
    "data.columns=[user,user,item,time]",
    "data.columns=[nope]",
    "data.columns=[]",
    "data.category=nope.json",
    "data.category=log.inter",
    "data.time=true",
    "data.max_length=1",
    "data.max_length=65536",
    "data.objective=next_item",
    "data.objective=nope",
    "data.pooling=none",
    "data.passes=1000000",
    "data.file=nope",
    "data.file=../log.inter",
    "data.on_bad_line=skip",
    "data.batch_size=1",
)


def cases() -> Iterator[Case]:
    for name, column in COLUMNS.items():
        for keys in ((), ("data.categorical=[c]",), ("data.dense=[c]", "data.categorical=[user]")):
            yield Case("columns", f"parquet: {name}", (*TABLE, *keys), DOCUMENTED, prepare=partial(_parquet, column, _clicks))
    for name, values in LABELS.items():
        yield Case("columns", f"parquet: labels are {name}", TABLE, DOCUMENTED, prepare=partial(_parquet, _words, partial(_labels, values)))
    for name, frame in {"no rows": pl.DataFrame({"label": [], "user": []}), "no columns": pl.DataFrame()}.items():
        yield Case("columns", f"parquet: {name}", TABLE, REFUSED, prepare=partial(_frame, frame))
    for name, text in TEXTS.items():
        yield Case("columns", f"table: {name}", TABLE, DOCUMENTED, prepare=partial(_text, "clicks.csv", text))
        split = (*TABLE, "data.splits.train=clicks.csv", "data.splits.validation=clicks.csv")
        yield Case("columns", f"table: {name}, twice", split, DOCUMENTED, prepare=partial(_text, "clicks.csv", text))
    for keys in KEYS:
        yield Case("columns", f"table: {keys}", (*TABLE, *keys.split()), DOCUMENTED, prepare=partial(_text, "clicks.csv", _table()))
    for name, text in LOGS.items():
        for keys in ("", "data.time=true", "data.format=log", "data.on_bad_line=skip"):
            yield Case("columns", f"log: {name} {keys}", (*LOG, *keys.split()), DOCUMENTED, prepare=partial(_text, "log.inter", text))
    for keys in LOG_KEYS:
        words = tuple(word for word in LOG if word.partition("=")[0] not in keys)
        yield Case("columns", f"log: {keys}", (*words, *keys.split()), DOCUMENTED, prepare=partial(_text, "log.inter", LOGS["as it is"]))


def _table() -> str:
    parts = ("train", "train", "train", "validation", "test")
    lines = [f"{i % 2},{i * 0.25},u{i % 37},i{i % 11},{parts[i // 2 % 5]}" for i in range(ROWS)]
    return "\n".join(["label,price,user,item,part", *lines]) + "\n"


def _text(name: str, text: str, here: Path) -> None:
    (here / name).write_bytes(text.encode())


def _clicks() -> pl.Series:
    return pl.Series([0, 1] * (ROWS // 2))


def _labels(values: list[Any]) -> pl.Series:
    return pl.Series([values[i % len(values)] for i in range(ROWS)])


def _words() -> pl.Series:
    return pl.Series([f"w{i % 7}" for i in range(ROWS)])


def _parquet(column: Callable[[], pl.Series], label: Callable[[], pl.Series], here: Path) -> None:
    _frame(pl.DataFrame({"label": label(), "user": _words(), "c": column()}), here)


def _frame(frame: pl.DataFrame, here: Path) -> None:
    frame.write_parquet(here / "clicks.parquet")
