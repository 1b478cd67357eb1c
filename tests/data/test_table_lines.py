"""Quotes in a table's lines, and what is no line of text at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from recsys_lab.data.table.header import table_format
from recsys_lab.data.text import Reading, read_text
from recsys_lab.errors import UserError
from tests.data.helpers import write
from tests.data.test_table_values import opened

GOOD = [f"{i % 2},u{i % 5},x{i % 3}" for i in range(60)]


def test_a_name_in_the_header_may_hold_quotes_and_separators(tmp_path: Path) -> None:
    """The reader leaves doubled quotes in a header as they are, and did not find the column."""
    write(tmp_path / "a.csv", ['label,"say ""x""","b,c"', *GOOD])
    data = opened(tmp_path, categorical=['say "x"', "b,c"], dense=[])
    assert [feature.rows for feature in data.features] == [7, 5]
    write(tmp_path / "a.csv.gz", ['label,"say ""x""","b,c"', *GOOD])
    (tmp_path / "a.csv").unlink()
    assert [feature.name for feature in opened(tmp_path).features] == ["say__x_", "b_c"]


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ('1,17" monitor,x', '"17"" monitor"'),
        ('1,"17" monitor",x', '"17"" monitor"'),
        ('1,"a 17" monitor,x', '"a 17"" monitor"'),
        ('1,u,"a"b', '"a""b"'),
        ('1,"a ""b"" c",5" nail', '"5"" nail"'),
    ],
)
@pytest.mark.parametrize("behind", [[], GOOD, ['1,9" nail,x'], ['1,"9"" nail",x']])
@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_a_quote_within_a_field_is_refused_with_its_line(tmp_path: Path, line: str, right: str, behind: list[str], separator: str) -> None:
    """An inch mark opens no quote, whatever stands behind it."""
    lines = [row.replace(",", separator) for row in ("label,user,item", *GOOD, line, *behind)]
    write(tmp_path / "a.csv", lines)
    with pytest.raises(UserError, match=r"a.csv:62: a quote .*; given '1.*and double those within it"):
        opened(tmp_path)
    write(tmp_path / "a.csv", [*lines[:61], separator.join(["1", right, "x"])])
    assert opened(tmp_path).splits["test"].rows == 6


def test_polars_and_csv_agree_on_rows_of_several_lines(tmp_path: Path) -> None:
    """Whichever reads it: the same fields, and the line on which a bad row begins."""
    rows = ["label,user,item", *(f'{i % 2},"u{i % 5}\nof ""{i % 2}""","x,{i % 3}"' for i in range(60))]
    path = write(tmp_path / "a.csv", [*rows, "1,u"])
    with pytest.raises(UserError, match="a.csv:122: too few fields; given 2; allowed: 3, separated by commas"):
        opened(tmp_path)
    frames = list(read_text(path, table_format(path), "skip", reading := Reading(), block_bytes=100))
    assert len(frames) > 10 and reading.first_skipped == "a.csv:122: too few fields"
    whole = pl.concat(frames)
    assert whole["user"].to_list() == [f'u{i % 5}\nof "{i % 2}"' for i in range(60)]
    assert whole["item"].to_list() == [f"x,{i % 3}" for i in range(60)]


@pytest.mark.parametrize("kind", ["Parquet", "gzip"])
def test_what_lies_in_a_gz_is_text(tmp_path: Path, kind: str) -> None:
    """`clicks.parquet.gz` was text with a byte 0x00."""
    pl.DataFrame({"label": [0, 1], "user": ["a", "b"]}).write_parquet(tmp_path / "a")
    inside = (tmp_path / "a").read_bytes() if kind == "Parquet" else gzip.compress(b"label,user\n1,a\n")
    (tmp_path / "my clicks.parquet.gz").write_bytes(gzip.compress(inside))
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    said = f"clicks.parquet.gz: not text; given {kind}, within gzip; allowed: text, or text compressed with gzip and named .gz; "
    assert str(caught.value).endswith(f"{said}unpack it: gunzip '{tmp_path}/my clicks.parquet.gz'")
