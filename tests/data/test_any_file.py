"""Whatever lies in the data folder: opened as a run opens it, each bad file is one line that names it, and a legal one reads as ever.

Every class of damage meets every format. A process a case would cost minutes, so the config is composed once a format.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, of_words
from tests.data.helpers import criteo_line

FRAPPE = {"user": 0, "item": 957, "daytime": 5039, "weekday": 5046, "isweekend": 5053, "homework": 5055, "cost": 5058}
FRAPPE |= {"weather": 5060, "country": 5069, "city": 5149}


@dataclass(frozen=True)
class Kind:
    """A format with good lines for it. `file` is the one that is damaged, `others` stand beside it."""

    words: tuple[str, ...]
    file: str
    lines: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def good(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


EVENTS = [(user, item, 10**9 + n) for n, (user, item) in enumerate((u, (3 * u + 7 * i) % 23) for i in range(6) for u in range(1, 9))]
CLICKS = tuple(f"{i % 2},{i % 7}.5,u{i % 5},é{i % 3}" for i in range(60))
KINDS = {
    "table": Kind(("data=table",), "clicks.csv", ("label,price,user,item", *CLICKS)),
    "quoted": Kind(
        ("data=table",), "clicks.tsv", ("label\tprice\tuser\titem", '1\t0.5\t"a\tb"\tx', *(c.replace(",", "\t") for c in CLICKS))
    ),
    "criteo": Kind(("data=criteo",), "train.tsv", tuple(criteo_line(i % 2, [i, "", -1], [f"{i % 9:x}"]) for i in range(60))),
    "frappe": Kind(
        ("data=frappe",),
        "train.csv",
        (",".join(["label", *FRAPPE]), *(",".join(map(str, [i % 2, *(first + i % 2 for first in FRAPPE.values())])) for i in range(60))),
        ("valid.csv",),
    ),
    "log": Kind(("data=interactions",), "log.csv", ("user_id,item_id,timestamp", *(f"{u},é{i},{t}" for u, i, t in EVENTS))),
    "sequences": Kind(
        ("data=interactions",), "users.txt", tuple(f"u{u} " + " ".join(f"i{(u * 5 + i) % 13}" for i in range(6)) for u in range(9))
    ),
    "movielens": Kind(("data=movielens",), "ratings.dat", tuple(f"{u}::{i}::3.5::{t}" for u, i, t in EVENTS)),
}


@dataclass
class Place:
    """A data folder of one kind, its cache, and the experiment that reads it."""

    kind: Kind
    root: Path
    cache: Path
    experiment: Experiment

    def put(self, content: bytes | None, suffix: str = "") -> Path:
        """Only `content` (None: nothing) in the damaged file's place, its name with `suffix`, and the good files beside it."""
        for path in self.root.iterdir():
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in self.kind.others:
            (self.root / name).write_bytes(self.kind.good)
        path = self.root / f"{self.kind.file}{suffix}"
        if content is not None:
            path.write_bytes(content)
        return path

    def rows(self) -> list[tuple]:
        data = self.experiment.open_data()
        read = {name: split.read(np.arange(split.rows)) for name, split in data.splits.items()}
        return [
            (name, rows.labels.tolist(), rows.ids.tolist(), None if rows.dense is None else rows.dense.tolist())
            for name, rows in read.items()
        ]

    def refused(self) -> str:
        before = set(os.listdir(self.cache)) if self.cache.exists() else set()
        with pytest.raises(UserError) as caught:
            self.experiment.open_data()
        message = str(caught.value)
        assert message.isprintable() and len(message) < 1000 and caught.value.exit_code == 2
        left = set(os.listdir(self.cache)) if self.cache.exists() else set()
        assert not [name for name in left - before if name.startswith((".preparing", "table"))], "nothing half-written"
        return message


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    made = {}
    for name, kind in KINDS.items():
        root, cache = tmp_path_factory.mktemp(name), tmp_path_factory.mktemp("cache") / "of"
        own = () if name == "movielens" or kind.words[0] != "data=interactions" else ("data.file=null",)
        words = [*kind.words, *own, f"data.root={root}", f"data.cache={cache}", "mode=plan", "logger=none"]
        made[name] = Place(kind, root, cache, of_words(words, "test"))
    return made


def zipped(data: bytes) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("data", data)
    return out.getvalue()


def line_3(new: bytes) -> Callable[[bytes], bytes]:
    """Something in front of the first letter of line 3, within its first field's line."""

    def changed(data: bytes) -> bytes:
        lines = data.split(b"\n")
        return b"\n".join([*lines[:2], lines[2][:-1] + new + lines[2][-1:], *lines[3:]])

    return changed


def as_utf16(name: str, mark: bytes = b"") -> Callable[[bytes], bytes]:
    return lambda data: mark + data.decode().encode(name)


ZSTD = b"\x28\xb5\x2f\xfd"
#: Suffix of the name, what is done to the good bytes, what the line says.
DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "gz cut in half": (".gz", lambda d: gzip.compress(d)[: len(gzip.compress(d)) // 2], "truncated or corrupt"),
    "gz cut in its header": (".gz", lambda d: gzip.compress(d)[:5], "truncated or corrupt"),
    "gz without its last byte": (".gz", lambda d: gzip.compress(d)[:-1], "truncated or corrupt"),
    "gz with another checksum": (".gz", lambda d: gzip.compress(d)[:-8] + b"\0\0\0\0" + gzip.compress(d)[-4:], "truncated or corrupt"),
    "gz with something behind it": (".gz", lambda d: gzip.compress(d) + b"more", "truncated or corrupt"),
    "text named gz": (".gz", lambda d: d, "named .gz, and not compressed with gzip"),
    "zip named gz": (".gz", zipped, "given zip"),
    "zstd named gz": (".gz", lambda d: ZSTD + d, "given zstd"),
    "nothing named gz": (".gz", lambda d: b"", "empty"),
    "gz of nothing": (".gz", lambda d: gzip.compress(b""), "empty"),
    "gz not named so": ("", gzip.compress, "given gzip; allowed: text, or text compressed with gzip and named .gz; name it .gz"),
    "zip": ("", zipped, "given zip"),
    "zstd": ("", lambda d: ZSTD + d, "given zstd"),
    "bzip2": ("", bz2.compress, "given bzip2"),
    "xz": ("", lzma.compress, "given xz"),
    "UTF-16": ("", as_utf16("utf-16"), ":1: not UTF-8 text; given UTF-16;"),
    "UTF-16 of the other end": ("", as_utf16("utf-16-be", b"\xfe\xff"), ":1: not UTF-8 text; given UTF-16;"),
    "UTF-16 without a mark": ("", as_utf16("utf-16-le"), ":1: not UTF-8 text; given UTF-16LE; convert it: iconv -f UTF-16LE"),
    "UTF-16BE without a mark": ("", as_utf16("utf-16-be"), ":1: not UTF-8 text; given UTF-16BE"),
    "UTF-16 in gz": (".gz", lambda d: gzip.compress(as_utf16("utf-16")(d)), ":1: not UTF-8 text; given UTF-16;"),
    "UTF-32": ("", as_utf16("utf-32"), ":1: not UTF-8 text; given UTF-32"),
    "latin-1": ("", line_3(b"\xe9"), ":3: not UTF-8 text; given byte 0xe9"),
    "half a letter": ("", line_3("é".encode()[:1]), ":3: not UTF-8 text; given byte 0xc3"),
    "NUL": ("", line_3(b"\0"), ":3: not UTF-8 text; given byte 0x00"),
    "latin-1 in gz": (".gz", lambda d: gzip.compress(line_3(b"\xe9")(d)), ":3: not UTF-8 text; given byte 0xe9"),
    "carriage returns alone": ("", lambda d: d.replace(b"\n", b"\r"), ":1: lines end in a carriage return alone"),
    "a line of megabytes": ("", lambda d: d + b"7" * (2 << 20), "a line is longer than 1 MiB"),
    "a blank line": ("", lambda d: d.replace(b"\n", b"\n\n", 2).replace(b"\n\n", b"\n", 1), ":3: "),
    "no line at all": ("", lambda d: b"", "empty"),
    "blank lines only": ("", lambda d: b"\n\n\n", ""),
    "zeros": ("", lambda d: bytes(5000), "not UTF-8 text"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_one_line(places: dict[str, Place], kind: str, damage: str) -> None:
    place, (suffix, change, said) = places[kind], DAMAGE[damage]
    path = place.put(change(place.kind.good), suffix)
    message = place.refused()
    assert path.name in message and said in message, message


LEGAL: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gz": (".gz", gzip.compress),
    "gz in parts": (".gz", lambda d: gzip.compress(d[:100]) + gzip.compress(b"") + gzip.compress(d[100:])),
    "gz padded with zeros": (".gz", lambda d: gzip.compress(d) + bytes(512)),
    "a byte order mark": ("", lambda d: b"\xef\xbb\xbf" + d),
    "a byte order mark in gz": (".gz", lambda d: gzip.compress(b"\xef\xbb\xbf" + d)),
    "carriage returns and line feeds": ("", lambda d: d.replace(b"\n", b"\r\n")),
    "no final line end": ("", lambda d: d.rstrip(b"\n")),
    "no final line end after a carriage return": ("", lambda d: d.replace(b"\n", b"\r\n").rstrip(b"\n")),
}


@pytest.mark.parametrize("legal", LEGAL)
@pytest.mark.parametrize("kind", KINDS)
def test_a_legal_file_reads_as_ever(places: dict[str, Place], kind: str, legal: str) -> None:
    place = places[kind]
    place.put(place.kind.good)
    expected = place.rows()
    suffix, change = LEGAL[legal]
    place.put(change(place.kind.good), suffix)
    assert place.rows() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_said_and_never_waited_for(places: dict[str, Place], kind: str) -> None:
    place = places[kind]
    for make, said in (
        (lambda path: path.mkdir(), "a folder"),
        (os.mkfifo, "a named pipe"),
        (lambda path: path.symlink_to("nowhere"), "a link to nothing"),
        (lambda path: path.symlink_to(path.name), "too many levels of symbolic links"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
    ):
        path = place.put(None)
        make(path)
        message = place.refused()
        assert path.name in message and said in message, message
    path = place.put(None)
    (place.root.parent / f"{kind}.elsewhere").write_bytes(place.kind.good)
    path.symlink_to(place.root.parent / f"{kind}.elsewhere")
    assert len(place.rows()) >= 2, "a link to a file is one"


@pytest.mark.parametrize("name", [b"caf\xe9.csv", b"two\nlines.csv", b"\x1b[2J.csv"])
def test_a_name_that_no_report_can_show_is_refused(places: dict[str, Place], name: bytes) -> None:
    place = places["table"]
    place.put(None)
    path = Path(os.fsdecode(bytes(place.root) + b"/" + name))
    path.write_bytes(place.kind.good)
    message = place.refused()
    assert "the name is not UTF-8, or has control characters in it" in message and "rename" in message
    (place.root / "good.csv").write_bytes(place.kind.good)
    assert "rename the file or the folder" in place.refused()


CRITEO_BAD = (
    "-0\t",
    "0000000000000000001\t",
    "-\t",
    "+1\t",
    "1\t-",
    "1\t--1",
    "1\t1-1",
    "1\t0000000000000000001",
    "1\t9999999999999999999",
)


@pytest.mark.parametrize("begin", CRITEO_BAD)
@pytest.mark.parametrize("beside", ["", "good", "bad"])
def test_a_criteo_line_is_bad_whatever_stands_beside_it(places: dict[str, Place], begin: str, beside: str) -> None:
    """A minus before a label of zero was accepted or refused by what else stood in its block."""
    place, good = places["criteo"], list(KINDS["criteo"].lines)
    fields = begin.split("\t")
    bad = "\t".join([*fields, *criteo_line(1, [3] * 13, ["a"] * 26).split("\t")[len(fields) :]])
    lines = {"": [bad], "good": [*good[:4], bad, *good], "bad": [bad, "also bad", *good]}[beside]
    path = place.put("".join(f"{line}\n" for line in lines).encode())
    assert f"{path.name}:{lines.index(bad) + 1}: " in place.refused()


FRAPPE_BAD = ("0,-0", "-0,1", "0,0000000000000000001", "0000000000000000000,1", "0,9999999999999999999", "0,+1")


@pytest.mark.parametrize("begin", FRAPPE_BAD)
@pytest.mark.parametrize("beside", ["", "good", "bad"])
def test_a_frappe_line_is_bad_whatever_stands_beside_it(places: dict[str, Place], begin: str, beside: str) -> None:
    place, (header, *good) = places["frappe"], KINDS["frappe"].lines
    bad = ",".join([begin, *good[0].split(",")[2:]])
    lines = [header, *{"": [bad], "good": [*good[:4], bad, *good], "bad": [bad, "also bad", *good]}[beside]]
    path = place.put("".join(f"{line}\n" for line in lines).encode())
    assert f"{path.name}:{lines.index(bad) + 1}: " in place.refused()


H = "label,price,user,item"
TABLES = {
    "a column without a name": ("label,,user,item", [], r":1: a column without a name; given column 2 of 4"),
    "a column of blanks": ("label,  ,user,item", [], r":1: a column without a name; given column 2 of 4"),
    "a tab in a name": ("label,a\tb,user,item", [], r":1: a control character in a column's name; given 'a\\tb'"),
    "an index of pandas": (",label,user,item", [], r":1: a column without a name; given column 1 of 4; .*index=False"),
    "two columns of one name": ("label,user,user,item", [], r":1: two columns have one name; given user"),
    "no header": ("1,0.5,ann,x", [], r"no column 'label'"),
    "a header and no row": (H, None, r"the train split is empty"),
    "too few fields": (H, ["1,0.5,ann"], r":62: too few fields; given 3; allowed: 4"),
    "too many fields": (H, ["1,0.5,ann,x,y"], r":62: too many fields; given 5; allowed: 4"),
    "a blank line": (H, [""], r":62: a blank line; allowed: 4 fields"),
    "blanks alone": (H, ["   "], r":62: a blank line"),
    "a quote without end": (H, ['1,0.5,"ann,x'], r":62: a quote is opened and never closed"),
    "a quote without end, megabytes before the end": (H, ['1,0.5,"ann,x', *["1,0.5,ann,x"] * 100_000], r":62: a quote is opened"),
    "words behind a quote": (H, ['1,0.5,"ann"e,x'], r":62: a quote within a field"),
    "a blank before a quote": (H, ['1,0.5, "ann,a",x'], r":62: too many fields"),
    "a label of two": (H, ["2,0.5,ann,x"], r"row 61: the label is not 0 or 1; given '2' in column label"),
    "a label of minus zero": (H, ["-0,0.5,ann,x"], r"row 61: the label is not 0 or 1; given '-0'"),
    "a label that is no number": (H, ["nan,0.5,ann,x"], r"row 61: the label is not 0 or 1; given 'nan'"),
    "no label": (H, [",0.5,ann,x"], r"row 61: the label is not 0 or 1; given nothing"),
    "hexadecimal": (H, ["1,0x1F,ann,x"], r"row 61: price is not a number; given '0x1F'"),
    "thousands": (H, ['1,"1,000.5",ann,x'], r"row 61: price is not a number; given '1,000.5'"),
    "underscores": (H, ["1,1_000,ann,x"], r"row 61: price is not a number"),
    "words": (H, ["1,N/A,ann,x"], r"row 61: price is not a number; given 'N/A'"),
    "infinity": (H, ["1,inf,ann,x"], r"row 61: price is no number that 32 bits can hold; given 'inf'"),
    "minus infinity": (H, ["1,-Infinity,ann,x"], r"row 61: price is no number that 32 bits can hold"),
    "more than 32 bits": (H, ["1,1e300,ann,x"], r"row 61: price is no number that 32 bits can hold; given '1e300'; mend"),
    "more than 64 bits": (H, ["1,1e999,ann,x"], r"row 61: price is no number that 32 bits can hold; given '1e999'"),
    "a signed NaN": (H, ["1,-nan,ann,x"], r"row 61: price is not a number; given '-nan'"),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_mistake_in_a_table_is_one_line(tmp_path: Path, name: str, suffix: str) -> None:
    header, more, said = TABLES[name]
    text = "".join(f"{line}\n" for line in [header, *(CLICKS if more is not None else ()), *(more or ())]).encode()
    (tmp_path / f"clicks.csv{suffix}").write_bytes(gzip.compress(text) if suffix else text)
    with pytest.raises(UserError, match=said) as caught:
        opened(tmp_path, dense=["price"])
    assert "clicks.csv" in str(caught.value) and not list((tmp_path / "cache").glob("*[!k]"))


def opened(root: Path, **changed):
    from tests.data.test_table import open_table, options

    return open_table(**options(root, label="label", split_column=None, **changed))


def test_two_files_with_other_columns(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("\n".join([H, *CLICKS]))
    (tmp_path / "valid.csv").write_text("\n".join([H.replace("price", "cost"), *CLICKS]))
    with pytest.raises(UserError, match=r"valid.csv: no column 'price'; given data.dense=price; allowed: label, cost, user, item"):
        opened(tmp_path, dense=["price"])
    (tmp_path / "valid.csv").write_text("\n".join([";".join(["user", "item", "more", "label", "price"]), "ann;x;;1;0.5", "ann;x;;0;0.5"]))
    assert opened(tmp_path, dense=["price"], categorical=["user", "item"]).splits["validation"].rows == 2, (
        "order and separator are a file's own"
    )


def test_far_values_and_constants_are_scaled_to_numbers(tmp_path: Path) -> None:
    lines = [f"{i % 2},0.1,{1 + (i % 2) * 1e-30},u{i % 3}" for i in range(80)]
    (tmp_path / "a.csv").write_text("\n".join(["label,constant,near,user", *lines]))
    data = opened(tmp_path, dense=["constant", "near"], categorical=["user"])
    dense = data.splits["train"].read(np.arange(data.splits["train"].rows)).dense
    assert dense is not None and np.abs(dense).max() < 1e-6, "what differs by rounding alone is no spread"
    (tmp_path / "a.csv").write_text("\n".join(["label,small,user", *(f"{i % 2},{i}e-44,u{i % 3}" for i in range(79)), "1,1,u1"]))
    with pytest.raises(UserError, match=r"row 80: small is too far off to train on; given 1, .* standard deviations from the mean"):
        opened(tmp_path, dense=["small"], categorical=["user"])


@pytest.mark.parametrize(("scale", "value"), [("none", "2e9"), ("standard", "1e37")])
def test_a_number_that_would_overflow_in_the_model_is_named(tmp_path: Path, scale: str, value: str) -> None:
    """It would end in predictions that are not finite, as if training had diverged."""
    (tmp_path / "train.csv").write_text("\n".join(["label,price,user", *(f"{i % 2},{i % 5},u{i % 3}" for i in range(80))]))
    (tmp_path / "valid.csv").write_text("\n".join(["label,price,user", "1,3,u1", f"0,{value},u2"]))
    with pytest.raises(UserError, match=r"valid.csv, row 2: price is too far off .* allowed: 1,000,000,000; .*dense_scale=log"):
        opened(tmp_path, dense=["price"], categorical=["user"], dense_scale=scale)
    assert opened(tmp_path, dense=["price"], categorical=["user"], dense_scale="log").splits["validation"].rows == 2


@pytest.mark.parametrize("split", ["valid", "test"])
def test_an_empty_file_is_the_one_that_is_named(tmp_path: Path, split: str) -> None:
    (tmp_path / "train.csv").write_text("\n".join(["label,user", *(f"{i % 2},u{i % 3}" for i in range(80))]))
    (tmp_path / f"{split}.csv").write_text("label,user\n")
    with pytest.raises(UserError, match=rf"{split}.csv: the {split}(ation)? split is empty"):
        opened(tmp_path, dense=[], categorical=["user"])


def test_a_log_is_told_of_the_columns_that_are_done(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("recsys_lab.base.progress.EVERY_S", 0.0)
    (tmp_path / "a.csv").write_text("\n".join(["label,user,item", *(f"{i % 2},u{i % 3},x" for i in range(80))]))
    opened(tmp_path, dense=[], categorical=["user", "item"])
    assert capsys.readouterr().err.splitlines()[-2:] == [
        f"encoding the columns of a.csv: {done} of 2 columns ({done / 2:.0%}) after 0 s" for done in (1, 2)
    ]


@pytest.mark.parametrize("names", [["type", "items", "training", "1st"], ["keys", "values", "forward", "ä ö"]])
def test_columns_may_have_the_names_of_a_modules_own(tmp_path: Path, names: list[str]) -> None:
    from torch import nn

    (tmp_path / "a.csv").write_text("\n".join([",".join(["label", *names]), *(f"{i % 2},a,b,c,d{i % 2}" for i in range(40))]))
    data = opened(tmp_path, categorical=names, dense=[])
    nn.ModuleDict({feature.name: nn.Identity() for feature in data.features})


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "zeros", "its middle"])
def test_a_damaged_parquet_is_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "clicks.parquet"
    pl.DataFrame({"label": [0, 1] * 500, "user": [f"u{i % 97}" for i in range(1000)]}).write_parquet(path)
    whole = path.read_bytes()
    damaged = {"truncated": whole[: len(whole) // 2], "text": b"label,user\n1,a\n", "empty": b"", "zeros": bytes(99)}
    path.write_bytes((damaged | {"its middle": whole[:8] + bytes(len(whole) - 16) + whole[-8:]})[damage])
    with pytest.raises(UserError, match=r"clicks.parquet: not a Parquet file that can be read"):
        opened(tmp_path)
