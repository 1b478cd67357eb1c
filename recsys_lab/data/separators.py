"""What the first lines of a text file say: what stands before its rows, and what separates their fields."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from recsys_lab.data.text import shorten
from recsys_lab.errors import UserError

#: Between fields that may stand in quotes.
QUOTABLE = (",", "\t", ";", "|", "\x01")
#: Where these fit, no other sign is what separates.
_CERTAIN = ("\t", "\x01", "::")
#: Between fields where no other sign is.
_RARE = ("^", "~", "\x02")
#: A line of libsvm's, libfm's or libffm's files: a label, then features with their values.
_SPARSE = re.compile(r"[-+]?\d+(\.\d+)?( qid:\d+)?( \d+(:\d+)?:[-+.\deE]+)+\s*")
_COMMENTS = ("#", "%")
_SEP = re.compile(r"\"?sep=(.)\"?\s*", re.IGNORECASE)
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
_MOST = 0.9  # of the lines looked at are as they should be: the others may be bad ones


def lines_before(lines: Sequence[str], path: Path) -> tuple[int, str | None]:
    """How many of the first `lines` of `path` are no rows: blank ones, comments, Excel's `sep=;`. And the separator that this names.

    UserError where a comment may be the header.
    """
    if sum(line.startswith(_COMMENTS) for line in lines) > (1 - _MOST) * len(lines) + 5:
        return 0, None  # ids begin so
    separator = None
    for number, line in enumerate(lines):
        if named := _SEP.fullmatch(line):
            separator = named[1]
        elif line.startswith(_COMMENTS):
            _refuse_header(line, number, lines[number + 1 :], path)
        elif line.strip():
            return number, separator
    return 0, None


def _refuse_header(comment: str, number: int, after: Sequence[str], path: Path) -> None:
    """UserError where `comment` has as many fields as the row after it."""
    row = next((line for line in after if line.strip() and not line.startswith(_COMMENTS)), "")
    separator = separator_of([row])
    fields = len(fields_of(row, separator))
    if separator != " " and fields > 1 and len(fields_of(comment, separator)) == fields:
        remedy = f"take {comment[0]} out where it is one, or the whole line: tail -n +{number + 2} FILE > NEW"
        raise UserError("a comment that may be the header", where=f"{path}:{number + 1}", given=shorten(comment), remedy=remedy)


def refuse_json(line: str, path: Path) -> None:
    """UserError where the first line of a file begins JSON that is not an object a line."""
    if not (begin := re.match(r"\s*(\[?\s*\{\s*(?:[\"']|$)|\[\s*$)", line)):
        return
    what, remedy = "JSON, but not an object a line", "write it so, in Python: polars.read_json('FILE').write_ndjson('NEW.jsonl')"
    if begin[1].endswith("'"):
        what, program = "objects of Python, whose single quotes are no JSON", "import ast, json, sys; "
        program += "[print(json.dumps(ast.literal_eval(line))) for line in sys.stdin]"
        remedy = f'convert them: python -c "{program}" < FILE > NEW.jsonl'
    elif begin[1].startswith("{") and line.rstrip().endswith("}"):
        remedy = "mend the line: text in double quotes, no comma before a bracket"
    raise UserError(what, where=f"{path}:1", given=shorten(line), allowed="JSON lines, or fields", remedy=remedy)


def refuse_sparse(lines: Sequence[str], path: Path) -> None:
    """UserError for a file whose fields are numbers of features with their values, as libsvm's are."""
    if sum(bool(_SPARSE.fullmatch(line)) for line in lines) >= _MOST * len(lines):
        raise UserError(
            "a file of libsvm's kind, whose features have no columns",
            where=f"{path}:1",
            given=shorten(lines[0]),
            allowed="a column for each feature",
            remedy="write it as columns; sklearn.datasets.load_svmlight_file reads it in Python",
        )


def said_before(lines: Sequence[str]) -> list[str]:
    """A note, or none, of the lines before a table's or a log's first one."""
    if not (said := [shorten(line) for line in lines if line.strip()]):
        return []
    return [f"passed over before the first row: {', '.join(said)}"]


def separator_of(lines: Sequence[str], fields: int | None = None) -> str:
    """What separates the fields of `lines`: of the signs that make equally many in nearly all of them, the one that makes most.

    `fields`: how many there are, where that is known. Blanks separate where nothing else does.
    """
    sizes = {sign: [_pieces(line, sign) for line in lines] for sign in (*QUOTABLE, "::", " ") if sign in lines[0].strip(" ")}
    even = {sign: of[0] for sign, of in sizes.items() if of[0] > 1 and of.count(of[0]) >= _MOST * len(of)}
    known = {sign: count for sign, count in even.items() if count == fields} or even
    certain = [sign for sign in _CERTAIN if sign in (known or sizes)]
    others = {sign: count for sign, count in (known or {sign: of[0] for sign, of in sizes.items()}).items() if sign != " "}
    best = next(iter(certain), None) or max(others, key=lambda sign: (others[sign], sign != ","), default=" ")
    if best == " " and " " not in even and (rare := [sign for sign in _RARE if _are_even(lines, sign)]):
        return rare[0]
    if best == "," and (beside := [sign for sign in (";", "|") if sign in even and _has_thousands(lines, sign)]):
        return beside[0]
    return best


def with_blank(separator: str, lines: Sequence[str]) -> str:
    """`separator`, and the blank after it where all lines have one there. Fields in quotes have none of it."""
    pairs = [(line.count(separator), line.count(f"{separator} ")) for line in lines]
    return (
        f"{separator} "
        if separator in (",", ";", "|") and all(one == two and '"' not in line for (one, two), line in zip(pairs, lines))
        else separator
    )


def _are_even(lines: Sequence[str], sign: str) -> bool:
    """Whether `sign` makes equally many fields of nearly all `lines`, and more than one."""
    fields = [line.count(sign) for line in lines]
    return fields[0] > 0 and fields.count(fields[0]) >= _MOST * len(fields)


def _has_thousands(lines: Sequence[str], separator: str) -> bool:
    """Whether all commas of `lines` are in numbers such as 1,500,000, where `separator` is what separates."""
    fields = [field for line in lines for field in fields_of(line, separator, True) if "," in field]
    return sum(bool(_THOUSANDS.fullmatch(field)) for field in fields) >= _MOST * len(fields)


def _pieces(line: str, separator: str) -> int:
    """How many fields `separator` makes of `line`."""
    if separator == " ":
        return len(line.split())
    outside = re.sub(r'"[^"]*"', "", line) if separator in QUOTABLE and '"' in line else line
    return outside.count(separator) + 1


def fields_of(line: str, separator: str, quoted: bool = False) -> list[str]:
    """A line's fields. Of blanks any number separates. `quoted`: a field may stand in quotes, but for blanks and two colons."""
    if quoted and separator in QUOTABLE and '"' in line:
        return next(csv.reader([line], delimiter=separator), [])
    return re.split(" +", line.strip(" ")) if separator == " " else line.split(separator)
