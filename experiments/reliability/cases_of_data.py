"""Cases of data files: truncated, of another format, in another encoding, with values that no column has."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from experiments.reliability.hostile import DOCUMENTED, REFUSED, Case

ROWS = 400
FRAPPE = "label,user,item,daytime,weekday,isweekend,homework,cost,weather,country,city"


def table_text() -> str:
    """A small table of clicks with both labels in every part of it."""
    lines = [f"{i % 2},{i * 0.25},u{i % 37},i{i % 11}" for i in range(ROWS)]
    return "\n".join(["label,price,user,item", *lines]) + "\n"


def criteo_text() -> str:
    counts, ids = "\t".join(str(i) for i in range(13)), "\t".join(f"{i:08x}" for i in range(26))
    return "".join(f"{i % 2}\t{counts}\t{ids}\n" for i in range(ROWS))


def frappe_text() -> str:
    rows = ("0,142,3946,5043,5051,5054,5056,5058,5060,5102,5149", "1,241,4553,5043,5051,5054,5055,5058,5061,5117,5236")
    return "\n".join([FRAPPE, *(rows[i % 2] for i in range(ROWS))]) + "\n"


def ratings_text() -> str:
    return "".join(f"{u}::{i}::{1 + (u + i) % 5}::{1000 + 17 * u + i}\n" for u in range(1, 21) for i in range(1 + u % 3, 12))


FORMATS: dict[str, tuple[str, tuple[str, ...], Callable[[], str]]] = {
    "table": ("clicks.csv", ("data=table", "data.label=label", "data.root={here}"), table_text),
    "criteo": ("train.tsv", ("data=criteo", "data.root={here}", "data.min_count=1"), criteo_text),
    "frappe": ("train.csv", ("data=frappe", "data.root={here}"), frappe_text),
    "movielens": ("ratings.dat", ("data=movielens", "data.root={here}", "data.pooling=sum", "data.objective=click"), ratings_text),
}


def _bytes(change: Callable[[bytes], bytes], file: str, text: Callable[[], str], here: Path) -> None:
    (here / file).write_bytes(change(text().encode()))
    if file == "train.csv":  # Frappe has a file for each split
        (here / "valid.csv").write_bytes(text().encode())


def _line(number: int, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Changes one line."""

    def changed(whole: bytes) -> bytes:
        lines = whole.split(b"\n")
        lines[number] = change(lines[number])
        return b"\n".join(lines)

    return changed


#: What is done to a whole file that then cannot be read.
BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "one newline": lambda whole: b"\n",
    "only spaces": lambda whole: b"   \n  \n",
    "zeros": lambda whole: b"\0" * 4096,
    "random bytes": lambda whole: bytes((i * 7919 + i // 251) % 256 for i in range(8192)),
    "UTF-16": lambda whole: whole.decode().encode("utf-16"),
    "UTF-32": lambda whole: whole.decode().encode("utf-32"),
    "a zip": lambda whole: b"PK\x03\x04" + b"\x14\0" * 400,
    "gzip without .gz": gzip.compress,
    "HTML": lambda whole: b"<!DOCTYPE html>\n<html><body>404</body></html>\n",
    "JSON": lambda whole: b'{"rows": [1, 2, 3]}\n',
    "one long line": lambda whole: b"x" * 3_000_000,
    "NUL inside": lambda whole: whole.replace(b"1", b"\0", 40),
    "not UTF-8 inside": _line(7, lambda line: line[:-1] + b"\xff\xfe\n"[:2] + b"\t\xff"),
    "a line cut short": _line(9, lambda line: line[: max(1, len(line) // 3)]),
    "a line twice as long": _line(9, lambda line: line + b"," + line + b"\t" + line + b"::" + line),
    "label 2": _line(5, lambda line: b"2" + line[1:]),
    "label missing": _line(5, lambda line: line[1:]),
    "label nan": _line(5, lambda line: b"nan" + line[1:]),
    "label -1": _line(5, lambda line: b"-1" + line[1:]),
    "label words": _line(5, lambda line: b"yes" + line[1:]),
}
#: Of MovieLens, whose first column is a user, a label says nothing.
MAY_BE_READ = {("movielens", f"label {value}") for value in ("2", "-1", "nan", "words", "missing")}
#: What is done to a file that can be read all the same.
FINE: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda whole: whole,
    "CRLF": lambda whole: whole.replace(b"\n", b"\r\n"),
    "no last newline": lambda whole: whole.rstrip(b"\n"),
    "a byte order mark": lambda whole: b"\xef\xbb\xbf" + whole,
}
GZ: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda whole: gzip.compress(whole)[:-20],
    "half": lambda whole: gzip.compress(whole)[: len(gzip.compress(whole)) // 2],
    "false": lambda whole: whole,
    "empty": lambda whole: b"",
    "header only": lambda whole: gzip.compress(whole)[:10],
    "flipped": lambda whole: gzip.compress(whole)[:40] + b"\xff\x00\xff" + gzip.compress(whole)[43:],
    "with junk behind": lambda whole: gzip.compress(whole) + b"junk" * 100,
}
TABLE_HEADERS: dict[str, bytes] = {
    "without a name": b"label,,user,item",
    "with a space for a name": b"label, ,user,item",
    "twice a name": b"label,user,user,item",
    "with a tab in a name": b"label,a\tb,user,item",
    "with a quote never closed": b'label,"price,user,item',
    "without the label": b"click,price,user,item",
    "not UTF-8": b"label,pr\xff,user,item",
    "of one column": b"label",
}
TABLE_VALUES = (b"1e300", b"-1e300", b"1e400", b"nan", b"inf", b"-inf", b"cheap", b"0x10", b"1,5,6", b'"')


def cases() -> Iterator[Case]:
    quick = ("mode=plan", "logger=none", "data.cache={here}/cache")
    for kind, (file, words, text) in FORMATS.items():

        def case(name: str, change: Callable[[bytes], bytes], expected: frozenset[int], *more: str, file: str = file) -> Case:
            prepare = partial(_bytes, change, file, text)  # noqa: B023  called in this turn
            return Case("data", f"{kind}: {name}", (*quick, *words, *more), expected, prepare=prepare)  # noqa: B023

        for name, change in BROKEN.items():
            yield case(name, change, DOCUMENTED if (kind, name) in MAY_BE_READ else REFUSED)
        for name, change in FINE.items():
            yield case(name, change, DOCUMENTED - REFUSED)
        for name, change in GZ.items():
            yield case(f"{name} .gz", change, DOCUMENTED if "junk" in name else REFUSED, file=f"{file}.gz")
        yield Case("data", f"{kind}: a folder of that name", (*quick, *words), prepare=partial(_folder, file))
        yield Case("data", f"{kind}: a link to nothing", (*quick, *words), prepare=partial(_dangling, file))
        yield Case("data", f"{kind}: a pipe", (*quick, *words), prepare=partial(_pipe, file))
        yield Case("data", f"{kind}: no file", (*quick, *words))
        yield Case("data", f"{kind}: the root is a file", (*quick, *words[:-1], *(("data.root={here}/x",))), prepare=partial(_touch, "x"))
    file, words, text = FORMATS["table"]
    for name, header in TABLE_HEADERS.items():
        change = _line(0, lambda _, header=header: header)
        yield Case("data", f"table: a header {name}", (*quick, *words), prepare=partial(_bytes, change, file, text))
    for value in TABLE_VALUES:
        change = _line(9, lambda _, value=value: b"1," + value + b",u1,i1")
        named = (*quick, *words, "data.dense=[price]", "data.categorical=[user,item]")
        expected = DOCUMENTED if value == b"nan" else REFUSED  # nan can mean that there is none
        yield Case("data", f"table: {value.decode()} for a number", named, expected, prepare=partial(_bytes, change, file, text))
    yield Case("data", "table: a file name that is not UTF-8", (*quick, *words), DOCUMENTED, prepare=_odd_name)
    yield Case(
        "data", "table: a parquet that is none", (*quick, *words), prepare=partial(_bytes, lambda whole: whole, "clicks.parquet", text)
    )
    for key in (
        "rows_per_table=[1000000000000000000]",
        "look_ups=[1000000,1,1]",
        "look_ups=[1,1]",
        "rows_per_table=[]",
        "dense_features=100000000",
    ):
        for data in ("random", "synthetic"):
            yield Case("data", f"{data}: {key}", ("mode=plan", "logger=none", f"data={data}", f"data.{key}"))


def _folder(file: str, here: Path) -> None:
    (here / file).mkdir()


def _dangling(file: str, here: Path) -> None:
    (here / file).symlink_to(here / "nothing")


def _pipe(file: str, here: Path) -> None:
    os.mkfifo(here / file)


def _touch(name: str, here: Path) -> None:
    (here / name).write_text("")


def _odd_name(here: Path) -> None:
    with open(os.fsencode(here) + b"/cl\xffcks.csv", "w", encoding="utf-8") as file:
        file.write(table_text())
