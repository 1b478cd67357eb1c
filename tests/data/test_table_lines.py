"""Quotes in a table's lines, and what is no line of text at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

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
    ("line", "given", "right"),
    [
        ('1,17" monitor,x', """'17" monitor'""", '"17"" monitor"'),
        ('1,"17" monitor",x', """'"17" monitor"'""", '"17"" monitor"'),
        ('1,"a 17" monitor,x', """'"a 17" monitor'""", '"a 17"" monitor"'),
        ('1,u,"a"b', """'"a"b'""", '"a""b"'),
        ('1,"a ""b"" c",5" nail', """'5" nail'""", '"5"" nail"'),
    ],
)
@pytest.mark.parametrize("behind", [[], GOOD, ['1,9" nail,x'], ['1,"9"" nail",x']])
@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_a_quote_within_a_field_is_shown_with_the_field_as_it_should_be(
    tmp_path: Path, line: str, given: str, right: str, behind: list[str], separator: str
) -> None:
    """An inch mark was a quote that is never closed, or advice to open the file in another mode."""
    lines = [row.replace(",", separator) for row in ("label,user,item", *GOOD, line, *behind)]
    write(tmp_path / "a.csv", lines)
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    remedy = "put the field in quotes, and double those within it"
    assert str(caught.value) == f"{tmp_path}/a.csv:62: not a row of a table (a quote within a field); given {given}; {remedy}: {right}"
    write(tmp_path / "a.csv", [*lines[:61], separator.join(["1", right, "x"])])
    assert opened(tmp_path).splits["test"].rows == 6


def test_a_field_that_is_too_long_is_shown_with_what_is_allowed(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["label,user,item", *GOOD, f"1,{'a' * 140_000},x"])
    said = r"a.csv:62: not a row .* given 'aaa.*\.\.\.'; allowed: 131,072 characters; shorten the field, or take its column out of the file"
    with pytest.raises(UserError, match=said):
        opened(tmp_path)


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
