"""From the text of a column to what a model reads: labels, numbers, rows of tables. Every column comes as text.

Shapes: N rows of all splits. Rows of tables are made of what `categories` returns."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from recsys_lab.data.text import shorten
from recsys_lab.errors import UserError

SCALES = ("standard", "log", "none")
GREATEST = float(np.finfo(np.float32).max)
#: Of what a model reads: products of four such numbers still fit into 32 bits.
FARTHEST = 1e9
#: From here on a float is no longer every whole number.
MOST_EXACT = 2.0**53
#: 3,5 for 3.5.
DECIMAL_COMMA = r"^-?\d*,\d+$"
#: 5,690 for 5690, or for 5.69: where every cell is so, nobody can tell.
THREE_DIGITS = r"^-?\d{1,3}(?:,\d{3})+$"
#: Of money and of shares, as people write them beside a number.
SIGNS = r"[$€£¥₹%]"
_CODES = "(?:USD|EUR|GBP|CHF|JPY|CNY|RMB|INR|KRW|BRL|CAD|AUD)"
#: Before thousands, beside the point and the comma.
_BLANKS = "' \u00a0\u202f"
#: A number with such a sign, or with signs between its thousands.
WRITTEN_OUT = (
    rf"^\s*(?:(?:{SIGNS}|{_CODES})\s*[-−]?[\d.,]*\d|[-−]?[\d.,]*\d\s*(?:{SIGNS}|{_CODES})|[-−]{SIGNS}[\d.,]*\d|−[\d.,]*\d"
    rf"|[-−]?\d{{1,3}}(?:\.\d{{3}})+,\d*|[-−]?\d{{1,3}}(?:,\d{{3}})+\.\d*|[-−]?\d{{1,3}}(?:[{_BLANKS}]\d{{3}})+(?:[.,]\d*)?)\s*$"
)
#: Says of a column of lists that its cells are JSON.
JSON = "json"
POOLINGS = ("sum", "mean")
NO_NUMBER = "leave the cell empty where a number is missing, or name it in data.categorical"
#: What may stand before a fraction.
DECIMALS = (".", ",")
MISSING, RARE = 0, 1  # rows of every vocabulary's table; hashed tables have the first alone
_TRUTHS = {"1": 1, "0": 0, "1.0": 1, "0.0": 0, "true": 1, "false": 0}
_SPELLED = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_SPLITS = {"train": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2}

#: Says which file and row a number of a row of all files together is.
Where = Callable[[int], str]


def categories(column: pl.Series) -> pl.Series:
    """The column with one spelling of each value. None: a missing one.

    3.0 is 3, as pandas writes an integer where another is missing. True is true. Blanks around a word are no part of it.
    """
    cells = column.replace([*_SPELLED, "NaN", "nan", ""], [*_SPELLED.values(), None, None, None])
    if cells.str.contains(r"^[ \t]|[ \t]$").any():
        cells = cells.str.replace(r"^[ \t]*([^ \t](?:.*[^ \t])?)[ \t]*$", "${1}")
    if cells.str.contains(".", literal=True).any():
        cells = cells.str.replace(r"^(-?\d+)\.0*$", "${1}")
    return cells.replace("-0", "0")


def bags(column: pl.Series, separator: str) -> tuple[pl.Series, np.ndarray]:
    """The values of all cells, one after the other, and how many each cell has, int64 [N].

    `separator` stands between them. JSON means JSON's arrays, and what Python prints of lists, tuples and arrays. Blanks around a value
    and empty ones are no values. A cell without a value has one, None.
    """
    if separator == JSON:
        cells = column.str.strip_chars().str.replace(r"^[\[(](.*)[\])]$", "$1")
        of_numpy = ~cells.str.contains("[,\"']").fill_null(False)
        cells = cells.zip_with(~of_numpy, cells.str.replace_all(r"\s+", ","))
        lists = cells.str.extract_all(r"\"(?:[^\"\\\\]|\\\\.)*\"|'[^']*'|[^\[\],\s\"'][^\[\],]*")
        values = lists.list.eval(pl.element().str.strip_chars().str.strip_chars("\"'").str.strip_chars())
        values = values.list.eval(pl.element().filter(pl.element() != "null"))
    else:
        values = column.str.split(separator).list.eval(pl.element().str.strip_chars())
    values = values.list.eval(pl.element().filter(pl.element() != ""))
    lengths = values.list.len().fill_null(0).to_numpy().astype(np.int64)
    one_or_more = values.to_frame("cell").select(pl.when(pl.col("cell").list.len() > 0).then("cell")).to_series()
    return categories(one_or_more.explode().rename(column.name)), np.maximum(lengths, 1)


def labels(column: pl.Series, where: Where) -> np.ndarray:
    """uint8 [N]. Raises UserError for the first that is not 0 or 1 (or true and false)."""
    cells = column.str.strip_chars().str.to_lowercase()
    codes = cells.replace_strict(_TRUTHS, default=None, return_dtype=pl.UInt8)
    _refuse(codes, column, "the label is not 0 or 1", "0, 1, true, false", where, "write 1 where it is a click and 0 where it is none")
    return codes.to_numpy()


def splits(column: pl.Series, where: Where) -> np.ndarray:
    """uint8 [N]: 0 train, 1 validation, 2 test."""
    cells = column.str.strip_chars().str.to_lowercase()
    codes = cells.replace_strict(_SPLITS, default=None, return_dtype=pl.UInt8)
    _refuse(codes, column, "no such split", ", ".join(_SPLITS), where)
    return codes.to_numpy()


def numbers(
    column: pl.Series, where: Where, train: np.ndarray, scale: str, known: tuple[float, float] | None = None, decimal: str = ""
) -> tuple[np.ndarray, tuple[float, float]]:
    """float32 [N], and the mean and spread of train. A missing one is the mean. `known`: both, where they were found before.

    `decimal`: what stands before the fraction of numbers that are written out for people; empty: they are plain.

    `scale` standard: mean 0 and variance 1 in train. log: the same of the logarithm of 1 + |x|, with x's sign. none: unchanged.
    """
    cells = column.str.strip_chars().replace(["", "NaN", "nan"], None)
    parsed = (plain(cells, decimal) if decimal else cells).cast(pl.Float64, strict=False)
    size = parsed.fill_null(0.0).abs()
    for bad, what, remedy in (
        ((parsed.is_null() | size.is_nan()) & cells.is_not_null(), "is not a number", NO_NUMBER),
        (size > GREATEST, "is no number that 32 bits can hold", "mend the row"),
    ):
        if bad.any():
            row = int(bad.arg_max() or 0)
            remedy = remedy if decimal else _as_written(cells, cells[row] or "") or remedy
            raise UserError(f"{column.name} {what}", where=where(row), given=shorten(str(column[row])), remedy=remedy)
    values = parsed.fill_null(np.nan).to_numpy().astype(np.float64)
    if scale == "log":
        values = np.sign(values) * np.log1p(np.abs(values))
    mean, spread = known or _mean_and_spread(values[train])
    values = np.where(np.isnan(values), mean, values)
    scaled = values if scale == "none" else (values - mean) / spread
    if (far := np.abs(scaled) > FARTHEST).any():
        row = int(far.argmax())
        given = str(column[row]) + ("" if scale == "none" else f", {scaled[row]:.3g} standard deviations from the mean of train")
        remedy = "mend the row, or data.dense_scale=log"
        raise UserError(
            f"{column.name} is too far off to train on", where=where(row), given=given, allowed=f"{FARTHEST:,.0f}", remedy=remedy
        )
    return scaled.astype(np.float32), (mean, spread)


def plain(cells: pl.Series, decimal: str) -> pl.Series:
    """Numbers that are written out for people, `$5,690.50`, as programs write them; other words as they are.

    `decimal` stands before a fraction, the other of point and comma, a blank or an apostrophe between thousands.
    """
    between = f"[{',' if decimal == '.' else '.'}{_BLANKS}]"
    sign, digits = rf"(?:{SIGNS}|{_CODES})?", rf"(?:\d{{1,3}}(?:{between}\d{{3}})+|\d*)"
    pattern = rf"^\s*{sign}\s*([-−]?)\s*{sign}\s*({digits})(?:{re.escape(decimal)}(\d*))?\s*{sign}\s*$"
    parts = cells.to_frame("cell").select(pl.col("cell"), parts=pl.col("cell").str.extract_groups(pattern)).unnest("parts")
    whole = pl.col("2").str.replace_all(between, "")
    number = pl.concat_str(pl.col("1").str.replace("−", "-"), whole, pl.lit("."), pl.col("3").fill_null("0"))
    return parts.select(pl.when(pl.col("2").is_not_null() & pl.col("cell").str.contains(r"\d")).then(number).otherwise("cell")).to_series()


def decimal_of(values: pl.Series) -> str:
    """What stands before the fraction in numbers that are written out for people. Of 5,690 alone nobody can tell: a point."""
    comma = values.str.contains(r",(?:\d{1,2}|\d{4,})\D*$|\.\d{3},|\.\d{3}\.|,\D*$")
    return "," if comma.any() and not values.str.contains(r"\.(?:\d{1,2}|\d{4,})\D*$|,\d{3}\.").any() else "."


def _as_written(cells: pl.Series, cell: str) -> str | None:
    """What to do with a number that is written out for people: after a comma three digits may be a fraction, or belong to thousands."""
    known, name = cells.drop_nulls(), cells.name
    read = plain(pl.Series([cell]), decimal := decimal_of(known))
    if read[0] == cell or read.cast(pl.Float64, strict=False).has_nulls():
        return None
    commas = known.filter(known.str.contains(",", literal=True))
    if re.fullmatch(THREE_DIGITS, cell) and commas.str.contains(THREE_DIGITS).all():
        whole, point = cell.replace(",", ""), cell.replace(",", ".", 1)
        both = [as_pairs({name: sign}) for sign in DECIMALS]
        return f"'data.decimal={both[0]}' where {cell} is {whole}, 'data.decimal={both[1]}' where it is {point}"
    return f"say what stands before the fraction: 'data.decimal={as_pairs({name: decimal})}'"


def as_pairs(signs: Mapping[str, str]) -> str:
    """`{price: ","}`, to be pasted as a key's value."""
    pairs = ((name if re.fullmatch(r"[A-Za-z_]\w*", name) else f'"{name}"', sign) for name, sign in signs.items())
    return "{" + ", ".join(f'{name}: "{sign}"' for name, sign in pairs) + "}"


def _mean_and_spread(values: np.ndarray) -> tuple[float, float]:
    present = values[~np.isnan(values)]
    mean, spread = (float(present.mean()), float(present.std())) if len(present) else (0.0, 0.0)
    constant = spread <= 4 * np.finfo(np.float64).eps * np.abs(present).max(initial=0.0)  # but for rounding
    return mean, 1.0 if constant else spread


def vocabulary(column: pl.Series, train: np.ndarray, min_count: int, known: pl.DataFrame | None = None) -> tuple[np.ndarray, pl.DataFrame]:
    """Rows int32 [N], and the values that have a row of their own: `value`, `row`.

    Missing, rare or unknown values come first, then values of train by falling frequency, ties by value. Those of `known` keep their rows,
    and others follow them.
    """
    cells = column.alias("value")  # whatever its own name, that of the counts is another
    counted = cells.filter(pl.Series(train)).drop_nulls().value_counts(name="seen")
    kept = counted.filter(pl.col("seen") >= min_count).sort(["seen", "value"], descending=[True, False])["value"]
    before = pl.DataFrame(schema={"value": pl.String, "row": pl.Int32}) if known is None else known
    new = kept.filter(~kept.is_in(before["value"].implode()))
    known = pl.concat([before, pl.DataFrame({"value": new, "row": np.arange(len(new), dtype=np.int32) + len(before) + RARE + 1})])
    joined = pl.DataFrame({"value": cells}).join(known, on="value", how="left", maintain_order="left")["row"]
    rows = joined.fill_null(RARE).to_numpy().astype(np.int32)
    rows[cells.is_null().to_numpy()] = MISSING
    return rows, known


def hashed(column: pl.Series, table_rows: int) -> tuple[np.ndarray, int]:
    """Rows int32 [N] and `table_rows`. Row 0 is for missing values, the others follow a hash of the text that is the same everywhere."""
    distinct = column.drop_nulls().unique().sort()
    others = max(table_rows - 1, 1)
    digests = (int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") for word in distinct)
    known = pl.DataFrame({"value": distinct, "row": pl.Series([min(d % others + 1, table_rows - 1) for d in digests], dtype=pl.Int32)})
    joined = pl.DataFrame({"value": column}).join(known, on="value", how="left", maintain_order="left")["row"]
    return joined.fill_null(MISSING).to_numpy().astype(np.int32), table_rows


def _refuse(codes: pl.Series, column: pl.Series, what: str, allowed: str, where: Where, remedy: str | None = None) -> None:
    if codes.has_nulls():
        row = int(codes.is_null().arg_max() or 0)
        given = "nothing" if column[row] is None else shorten(str(column[row]))
        raise UserError(what, where=where(row), given=f"{given} in column {column.name}", allowed=allowed, remedy=remedy)
