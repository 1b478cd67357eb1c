"""How logs write times: numbers of any unit, nanoseconds since 1970, ISO 8601, or dates as people write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

NUMBERS = "numbers"
_HARDLY = 0.01
_MOST = 0.9  # of the values looked at: the others may be bad ones
_NUMBER = r"^-?[0-9]{1,19}(\.[0-9]{0,18})?([eE]\+?[0-9]{1,2})?$"
_BASIC = r"^([0-9]{4})([0-9]{2})([0-9]{2})[Tt]([0-9]{2})([0-9]{2})"  # 20190507T0816
_SLASHES = r"^([0-9]{4})/([0-9]{2})/([0-9]{2})"
_ISO = (
    r"^(?P<day>(?:1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<minute>[0-9]{2}:[0-9]{2})(?::?(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r" ?(?:[Zz]|UTC|GMT|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2}))?)?)?$"
)
_DAY = r"[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?( ?[AaPp][Mm])?"
_DATE_LIKE = rf"^{_DAY}([Tt ,]|$)|^[A-Z][a-z]{{2}},? [A-Z0-9].* {_CLOCK}|^{_CLOCK}$"
_DAY_IN_DIGITS = "(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])"
_HOUR = "([01][0-9]|2[0-3])"
_DIGITS = rf"^((19[89]|20[0-4])[0-9]{_DAY_IN_DIGITS}({_HOUR}([0-5][0-9]){{0,2}})?|[0-9]{{2}}{_DAY_IN_DIGITS}{_HOUR})$"
_YEAR_LAST = (
    r"^(0?[1-9]|[12][0-9]|3[01])(0[1-9]|1[0-2])(19[89]|20[0-4])[0-9]$|^(0?[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])(19[89]|20[0-4])[0-9]$"
)
_HALF_DAY = r"^(?P<day>.*?)[,Tt ] *(?P<hour>[0-9]{1,2})(?P<rest>:[0-9]{2}(?::[0-9]{2})?) ?(?P<half>[AaPp])\.?[Mm]\.?$"
_WORDS = "%a %b %d %H:%M:%S %z %Y"
_EARLIEST, _LATEST = 3e8, 2.2e9  # 1979 and 2039, in seconds since 1970


@dataclass(frozen=True)
class Times:
    """A way to write times. `read`: of words their numbers, null where one is no time. `unit`: how many are one of what gaps count."""

    read: Callable[[pl.Expr], pl.Expr]
    unit: int
    what: str
    allowed: str


def _numbers(words: pl.Expr) -> pl.Expr:
    return pl.when(words.str.contains(_NUMBER)).then(words).cast(pl.Float64)


def _nanoseconds(words: pl.Expr) -> pl.Expr:
    return pl.when(words.str.contains("^[0-9]{18,19}$")).then(words).cast(pl.Int64, strict=False)


def _iso(words: pl.Expr) -> pl.Expr:
    """int64: nanoseconds since 1970. Without an offset a time is UTC."""
    dashes = words.str.replace(_BASIC, "$1-$2-${3}T$4:$5").str.replace(_SLASHES, "$1-$2-$3")
    parts = dashes.str.extract_groups(_ISO).struct
    clock = pl.concat_str(parts.field("day"), pl.lit("T"), parts.field("minute").fill_null("00:00"))
    seconds = clock.str.to_datetime("%Y-%m-%dT%H:%M", strict=False).dt.epoch("s") + parts.field("second").cast(pl.Int64).fill_null(0)
    hours, minutes = (parts.field(name).cast(pl.Int64).fill_null(0) for name in ("hours", "minutes"))
    offset = pl.when(parts.field("sign") == "-").then(-1).otherwise(1) * (3600 * hours + 60 * minutes)
    fraction = parts.field("fraction").str.pad_end(9, "0").cast(pl.Int64).fill_null(0)
    return ((seconds - offset) * 10**9 + fraction).alias("time")


def _in_words(words: pl.Expr) -> pl.Expr:
    return words.str.to_datetime(_WORDS, strict=False, time_zone="UTC", time_unit="us").dt.epoch("ns").alias("time")


def _written(day_first: bool | None) -> Callable[[pl.Expr], pl.Expr]:
    """Dates with points, and clocks of twelve hours or of one digit; with a `day_first` also years after slashes or dashes."""

    def read(words: pl.Expr) -> pl.Expr:
        parts = words.str.extract_groups(_HALF_DAY).struct
        hour = parts.field("hour").cast(pl.Int64) % 12 + pl.when(parts.field("half").str.to_lowercase() == "p").then(12).otherwise(0)
        of_half = pl.concat_str(parts.field("day"), pl.lit(" "), hour.cast(pl.String), parts.field("rest"))
        plain = pl.coalesce(of_half, words).str.replace(r"[,Tt ] *([0-9]{1,2}:)", " $1").str.replace(r" ([0-9]:)", " 0$1")
        plain = plain.str.replace(r"^([0-9][./-])", "0$1").str.replace(r"^([0-9]{2}[./-])([0-9][./-])", "${1}0$2")
        plain = plain.str.replace(r"^([0-9]{2})\.([0-9]{2})\.([0-9]{4})", "$3-$2-$1").str.replace(
            r"^([0-9]{4})\.([0-9]{2})\.([0-9]{2})", "$1-$2-$3"
        )
        if day_first is not None:
            plain = plain.str.replace(r"^([0-9]{2})[/-]([0-9]{2})[/-]([0-9]{4})", "$3-$2-$1" if day_first else "$3-$1-$2")
        return _iso(plain)

    return read


KINDS = {
    "iso": Times(_iso, 10**9, "ISO 8601 as in the first lines", "2019-05-07, or 2019-05-07T08:16:07.123+02:00"),
    "words": Times(_in_words, 10**9, "a date as in the first lines", "Tue Apr 03 18:00:09 +0000 2012"),
    "nanoseconds": Times(_nanoseconds, 10**9, "nanoseconds since 1970 as in the first lines", "18 or 19 digits"),
    NUMBERS: Times(_numbers, 1, "a number", "digits, a point and an exponent or none; in every line, ISO 8601 (2019-05-07T08:16:07Z)"),
    "written": Times(_written(None), 10**9, "a date as in the first lines", "14.07.2017 10:51:09"),
    "day first": Times(_written(True), 10**9, "a date as in the first lines, the day first", "14/07/2017 10:51:09"),
    "month first": Times(_written(False), 10**9, "a date as in the first lines, the month first", "07/14/2017 10:51:09 AM"),
}
#: Those that are nothing but times.
CALENDAR = ("iso", "words", "written", "day first", "month first")


def kind_of_times(values: Sequence[str]) -> str | None:
    """The key of `KINDS` by which nearly all of `values` are times; of day and month first the one by which more are. None of others."""
    kind = next((kind for kind in KINDS if _share_of(kind, values) >= _MOST), None)
    return "month first" if kind == "day first" and _share_of("month first", values) > _share_of(kind, values) else kind


def are_of_two_orders(values: Sequence[str]) -> bool:
    """Whether nothing tells if they have the day or the month first."""
    return kind_of_times(values) == "day first" and _share_of("month first", values) == _share_of("day first", values)


def _share_of(kind: str, values: Sequence[str]) -> float:
    return _share(KINDS[kind].read(pl.col("")).is_not_null(), values)


def are_instants(values: Sequence[str]) -> bool:
    """Whether nearly all of `values` are ISO 8601, or numbers that are seconds from 1979 to 2039, or milli-, micro- or nanoseconds."""
    numbers = _numbers(pl.col("").str.replace_all(r",([0-9]{3})", "$1"))
    epochs = [numbers.is_between(_EARLIEST * unit, _LATEST * unit) for unit in (1, 10**3, 10**6)]
    epochs.append(_nanoseconds(pl.col("")).is_between(int(_EARLIEST * 10**9), int(_LATEST * 10**9)))  # a float so great is an id
    return kind_of_times(values) in CALENDAR or any(_share(epoch, values) >= _MOST for epoch in epochs)


def are_dates(values: Sequence[str]) -> bool:
    """Whether nearly all of `values` are written as dates or clocks are, in digits too (20170814, 17081410, 20170814105109)."""
    return kind_of_times(values) in CALENDAR or _share(pl.col("").str.contains(f"{_DATE_LIKE}|{_DIGITS}"), values) >= _MOST


def are_days(values: Sequence[str]) -> bool:
    """Whether they are dates without a clock."""
    return _share(pl.col("").str.contains(rf"^{_DAY}$|^(19|20)[0-9]{{6}}$"), values) >= _MOST


def are_clocks(values: Sequence[str]) -> bool:
    return _share(pl.col("").str.contains(rf"^{_CLOCK}$"), values) >= _MOST


def are_years_last(values: Sequence[str]) -> bool:
    """Whether they are dates in digits with the year at their end: as numbers these do not sort."""
    return _share(pl.col("").str.contains(_YEAR_LAST), values) >= _MOST


def are_numbers(values: Sequence[str]) -> bool:
    """Whether they are numbers, with a point or a comma before a fraction."""
    return _share(_numbers(pl.col("").str.replace(",", ".", literal=True)).is_not_null(), values) >= _MOST


def has_several_units(times: np.ndarray) -> bool:
    """Whether some are seconds since 1970, and others milliseconds or finer ones: together they do not sort."""
    seconds, finer = ((times >= _EARLIEST) & (times <= _LATEST)).mean(), (times >= _EARLIEST * 1000).mean()
    return bool(min(seconds, finer) >= _HARDLY and seconds + finer >= _MOST)


def without_instant(times: np.ndarray) -> int:
    """How many are 0 or less where the others are instants since 1979: they may be missing."""
    return int((times <= 0).sum()) if (times >= _EARLIEST).mean() >= 0.5 else 0


def are_fractions(values: Sequence[str]) -> bool:
    """Whether nearly all of `values` are numbers, and one of ten has a fraction, as prices have."""
    number, fraction = pl.col("").str.contains(r"^-?[$€£]?[0-9]+([.,][0-9]+)?$"), pl.col("").str.contains(r"[.,][0-9]*[1-9][0-9]*$")
    return _share(number, values) >= _MOST and _share(number & fraction, values) >= 1 - _MOST


def _share(good: pl.Expr, values: Sequence[str]) -> float:
    """Of `values`, 0 where there are none."""
    return float(pl.DataFrame({"": values}, schema={"": pl.String}).select(good.fill_null(False).mean()).item() or 0.0)
