"""Logs of interactions drawn from a known truth, and written as people write them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from recsys_lab.data.interactions import open_interactions
from tests.data.helpers import interactions_options

#: What a user had, in the order of time. Items of one time are one set, as nothing orders them.
Truth = list[list[tuple[str, ...]]]

SEPARATORS = [",", ",", ",", ";", "|", "\t", "\t", "::", " ", "\x01"]
QUOTABLE = {",", ";", "|", "\t", "\x01"}
USERS = ["user_id", "userId", "User-ID", "uid", "visitorid", "reviewerID", "user_id:token", "session_id"]
ITEMS = ["item_id", "itemId", "movieId", "ISBN", "asin", "business_id", "artistID", "venue_id", "item_id:token", "track_id"]
TIMES = ["timestamp", "time", "event_time", "datetime", "created_at", "date", "unixReviewTime", "timestamp:float"]
OTHERS = ["event", "title", "price", "Unnamed: 0", "", "category", "lat", "note", "behavior:token"]


@dataclass
class Draw:
    """A file, how it is opened, what is in it, and whether a refusal is as good. `told` says how it was drawn."""

    root: Path
    truth: Truth
    options: dict = field(default_factory=dict)
    may_refuse: list[str] = field(default_factory=list)
    told: dict = field(default_factory=dict)


def iso(form: str) -> Callable[[int], str]:
    def written(seconds: int) -> str:
        return str(np.datetime64(seconds, "s").astype("datetime64[s]").item().strftime(form))

    return written


#: By name: how seconds since 1970 are written, and the step between two times that is still told apart.
WRITTEN: dict[str, tuple[Callable[[int], str], int]] = {
    "seconds": (str, 1),
    "milliseconds": (lambda s: f"{s}000", 1),
    "microseconds": (lambda s: f"{s}000000", 1),
    "nanoseconds": (lambda s: f"{s}123456789", 1),
    "float": (lambda s: f"{s}.0", 1),
    "fraction": (lambda s: f"{s}.25", 1),
    "exponent": (lambda s: f"{s:.6e}", 1000),
    "long exponent": (lambda s: f"{s:.9E}", 1),
    "Z": (iso("%Y-%m-%dT%H:%M:%SZ"), 1),
    "milli Z": (iso("%Y-%m-%dT%H:%M:%S.123Z"), 1),
    "naive": (iso("%Y-%m-%d %H:%M:%S"), 1),
    "UTC": (iso("%Y-%m-%d %H:%M:%S UTC"), 1),
    "offset": (lambda s: iso("%Y-%m-%dT%H:%M:%S+02:00")(s + 7200), 1),
    "mixed offsets": (lambda s: iso(f"%Y-%m-%dT%H:%M:%S+0{s % 7}:30")(s + 3600 * (s % 7) + 1800), 1),
    "minutes": (iso("%Y-%m-%d %H:%M"), 60),
    "day": (iso("%Y-%m-%d"), 86400),
    "basic": (iso("%Y%m%dT%H%M%SZ"), 1),
    "YYYYMMDD": (iso("%Y%m%d"), 86400),
    "YYYYMMDDhhmmss": (iso("%Y%m%d%H%M%S"), 1),
    "YYMMDDhh": (iso("%y%m%d%H"), 3600),
    "twitter": (iso("%a %b %d %H:%M:%S +0000 %Y"), 1),
    "american": (iso("%m/%d/%Y %H:%M:%S"), 1),
    "german": (iso("%d.%m.%Y %H:%M:%S"), 1),
    "slashes": (iso("%Y/%m/%d %H:%M:%S"), 1),
    "twelve hours": (iso("%Y-%m-%d %I:%M:%S %p"), 1),
    "DDMMYYYY": (iso("%d%m%Y"), 86400),
    "date and clock": (iso("%Y-%m-%d"), 1),
    "thousands": (lambda s: f"{s:,}", 1),
    "small": (lambda s: str((s - 1_500_000_000) // 60), 60),
}
#: Forms that need not be read.
RARE = {"twitter", "american", "german", "slashes", "twelve hours", "DDMMYYYY", "date and clock", "thousands"}
#: Forms that a file without header need not be told by.
PLAIN = {"YYYYMMDD", "YYYYMMDDhhmmss", "YYMMDDhh", "small", "exponent"}


def names_of(random: np.random.Generator, kind: str, count: int, letter: str) -> list[str]:
    numbers = random.choice(10**6, count, replace=False) + 1
    return {
        "digits": [str(n % 100 + 100 * i) for i, n in enumerate(numbers)],
        "small": [str(i + 1) for i in range(count)],
        "words": [f"{letter}{n}" for n in numbers],
        "hex": [f"{n * 2654435761 % 2**64:016x}" for n in numbers.tolist()],
        "isbn": [f"{n:09d}X" for n in numbers],
        "zeros": [f"{n:08d}" for n in numbers],
        "great": [str(2**60 + n) for n in numbers.tolist()],
        "floats": [f"{n}.0" for n in numbers],
        "accents": [f"é{letter}{n}" for n in numbers],
        "rounded": [repr(float(2**60 + n * 10**6)) for n in numbers.tolist()],
        "titles": [f"The {letter}, {n}; part {i}" for i, n in enumerate(numbers)],
    }[kind]


def drawn_truth(random: np.random.Generator, step: int, ties: bool) -> tuple[list[list[tuple[int, int]]], int]:
    """By user, (time in seconds, item) in the order of time; and how many items there are."""
    items = int(random.integers(9, 16))
    histories = []
    for _ in range(random.integers(4, 9)):
        length = int(random.integers(5, 9))
        moments = 1_500_000_000 // step + np.sort(random.choice(40 if ties else 3000, length, replace=ties))
        histories.append([(int(moment) * step, int(item)) for moment, item in zip(moments, random.integers(0, items, length))])
    return histories, items


def log_file(random: np.random.Generator, root: Path) -> Draw:
    """A log in a folder of its own."""
    form = str(random.choice([*WRITTEN, "none", "none"]))
    write_time, step = WRITTEN.get(form, (str, 1))
    histories, n_items = drawn_truth(random, step, ties=form != "none" and random.random() < 0.3)
    separator, header = str(random.choice(SEPARATORS)), str(random.choice(["known", "known", "known", "keys", "bare", "bare", "unknown"]))
    quotes = str(random.choice(["none", "needed", "all"])) if separator in QUOTABLE else "none"
    kinds = ["digits", "small", "words", "hex", "isbn", "zeros", "great", "floats", "accents", "rounded"]
    user_kind, item_kind = str(random.choice(kinds)), str(random.choice([*kinds, "titles"] if quotes != "none" else kinds))
    users, items = names_of(random, user_kind, len(histories), "u"), names_of(random, item_kind, n_items, "i")
    events = [(time, user, item) for user, own in enumerate(histories) for time, item in own]
    order = str(random.choice(["time", "user", "shuffled"])) if form != "none" else str(random.choice(["time", "user"]))
    events = [events[i] for i in {"user": range(len(events)), "time": np.argsort([e[0] for e in events], kind="stable")}.get(
        order, random.permutation(len(events)))]  # fmt: skip

    n = len(events)
    columns = {"user": [users[user] for _, user, _ in events], "item": [items[item] for _, _, item in events]}
    if random.random() < 0.5:
        scale = str(random.choice(["1", "0.5", "count"]))
        marks = random.integers(1, 6, n)
        columns["rating"] = [str(mark if scale == "1" else mark / 2 if scale == "0.5" else mark**4) for mark in marks]
    if form != "none":
        columns["time"] = [write_time(time) for time, _, _ in events]
        if form == "date and clock":
            columns["other clock"] = [iso("%H:%M:%S")(time) for time, _, _ in events]
    extras = {
        "other event": ["view", "cart", "buy"], "other title": ["A film", "Another one", "A third"], "other index": None,
        "other empty": [""], "other price": ["4.99", "12.50", "7.05"], "other number": ["1", "2", "3"],
        "other missing": ["\\N", "7", "NA"], "other day": ["2001-05-06", "2003-08-09"], "other list": ["1|2", "3", "4|5|6"],
    }  # fmt: skip
    if header != "bare":
        for name in random.choice(list(extras), int(random.integers(0, 3)), replace=False):
            cells = extras[str(name)]
            columns[str(name)] = list(map(str, range(n))) if cells is None else [str(cell) for cell in random.choice(cells, n)]
        columns = {name: columns[name] for name in random.permutation(list(columns)).tolist()}
    elif form != "none" and random.random() < 0.3:
        place = int(random.integers(0, len(columns)))
        others = [name for name in columns if name != "time"]
        columns = {name: columns[name] for name in [*others[:place], "time", *others[place:]]}
    options: dict = {}
    may_refuse: list[str] = []
    titles = None
    if header == "known":
        own = {"user": USERS, "item": ITEMS, "time": TIMES, "rating": ["rating", "score", "Book-Rating"]}
        spare = random.permutation(OTHERS).tolist()
        titles = [str(random.choice(own[name])) if name in own else spare.pop() for name in columns]
    elif header == "unknown":
        titles = [f"feld{number}" for number, _ in enumerate(columns)]
        may_refuse.append("a header of unknown names")
    elif header == "keys":
        options["columns"] = ["other" if name.startswith("other") else name for name in columns]
    cells = [cell for own in [*columns.values(), titles or []] for cell in own]
    if header != "bare" and separator == " " and any(" " in cell or not cell for cell in cells):
        may_refuse.append("blanks within fields separated by blanks")
    if header == "bare":
        may_refuse += ["bare"] if form in PLAIN | RARE | {"none"} or list(columns)[:2] != ["user", "item"] or len(columns) > 4 else []
        may_refuse += ["few lines an item"] if 2 * n_items > n else []
    may_refuse += ["form"] if form in RARE else []
    may_refuse += ["another date"] if "other day" in columns else []
    may_refuse += ["ids in floats"] if "rounded" in (user_kind, item_kind) else []
    may_refuse += ["separators in fields"] if any(separator in c for cs in columns.values() for c in cs) and quotes == "none" else []
    rows = [titles] * (titles is not None) + list(map(list, zip(*columns.values())))
    encoding = str(random.choice(["utf-8"] * 12 + ["utf-8-sig", "utf-8-sig", "latin-1", "utf-16"]))
    if encoding == "utf-16" or encoding == "latin-1" and not all(c.isascii() for cs in columns.values() for c in cs):
        may_refuse.append(encoding)
    preamble = str(random.choice([""] * 24 + ["sep", "#", "%", "blank"]))
    before = {"sep": [f"sep={separator}"], "#": ["# a log of 2019"], "%": ["% bip unweighted"], "blank": [""]}.get(preamble, [])
    may_refuse += ["preamble"] if before else []
    tail = separator if separator in QUOTABLE and random.random() < 0.05 else ""
    may_refuse += ["a separator at the end"] if tail else []
    end = str(random.choice(["\n", "\n", "\r\n"]))
    stray = str(random.choice([""] * 50 + ["#", "%", "blank"]))
    suffix = str(random.choice([".csv", ".txt", ".dat", ".tsv", ".inter", ".csv.gz"]))
    written = [*before, *(line(row, separator, quotes) + tail for row in rows)]
    if stray:
        written.insert(int(random.integers(len(before) + 1, len(written))), {"#": "# 5 6", "%": "% a, b", "blank": ""}[stray])
        may_refuse.append("a stray line")
    plain = not before and not stray and encoding in ("utf-8", "utf-8-sig")
    stored = str(random.choice(["text"] * 5 + ["parts"] * plain + ["parquet", "json"] * (header != "bare")))
    if stored in ("parquet", "json"):
        titles = titles or [f"feld{number}" for number, _ in enumerate(columns)]
        put_named(random, root, stored, titles, columns)
        of_text = (
            "utf-16",
            "latin-1",
            "preamble",
            "a separator at the end",
            "a stray line",
            "separators in fields",
            "blanks within fields",
        )
        may_refuse = [why for why in may_refuse if not why.startswith(of_text)]
    elif stored == "parts":
        head = written[: len(written) - n]
        ends = [0, *sorted(random.integers(0, n + 1, int(random.integers(1, 4))).tolist()), n]
        for number, (first, last) in enumerate(zip(ends, ends[1:])):
            own = [*head, *written[len(head) + first : len(head) + last]] if last > first or random.random() < 0.5 else []
            put(root / f"part-{number:05d}{suffix}", "".join(f"{one}{end}" for one in own).encode(encoding))
    else:
        text = end.join(written) + ("" if random.random() < 0.2 else end)
        put(root / f"log{suffix}", text.encode(encoding))
    told = {"separator": separator, "header": header, "columns": list(columns), "time": form, "quotes": quotes, "order": order, "end": end}
    told |= {"users": user_kind, "items": item_kind, "encoding": encoding, "preamble": preamble, "suffix": suffix, "titles": titles}
    told |= {"stored": stored}
    return Draw(root, groups(histories, items), options, may_refuse, told | {"may refuse": may_refuse})


def put_named(random: np.random.Generator, root: Path, stored: str, titles: list[str], columns: dict[str, list[str]]) -> None:
    """The columns as Parquet or JSON lines, ids and times as numbers where these are whole and lose nothing."""
    typed = [random.random() < 0.5 and all(re.fullmatch("0|[1-9][0-9]{0,17}", cell) for cell in own) for own in columns.values()]
    if stored == "json":
        rows = [[cell if is_number else json.dumps(cell) for cell, is_number in zip(row, typed)] for row in zip(*columns.values())]
        objects = [", ".join(f"{json.dumps(name)}: {cell}" for name, cell in zip(titles, row)) for row in rows]
        put(root / str(random.choice(["log.jsonl", "log.ndjson.gz", "log.json"])), "".join(f"{{{one}}}\n" for one in objects).encode())
        return
    frame = pl.DataFrame(
        [pl.Series(name, own).cast(pl.Int64 if number else pl.String) for name, own, number in zip(titles, columns.values(), typed)]
    )
    root.mkdir(exist_ok=True)
    frame.write_parquet(root / "log.parquet")


def sequences_file(random: np.random.Generator, root: Path) -> Draw:
    """A line a user: the user and its items."""
    histories, n_items = drawn_truth(random, 1, False)
    separator = str(random.choice([" ", "\t", ",", ";", "|"]))
    kinds = ["digits", "small", "words", "hex", "isbn", "great"]
    users, items = (names_of(random, str(random.choice(kinds)), count, letter) for count, letter in ((len(histories), "u"), (n_items, "i")))
    if random.random() < 0.3:  # equally many items a user, as in a log without header
        histories = [own[: int(len(histories) % 3) + 2] for own in histories]
    lines = [separator.join([user, *(items[item] for _, item in own)]) for user, own in zip(users, histories)]
    put(root / "users.txt", "".join(f"{one}\n" for one in lines).encode())
    told = {"sequences": separator}
    return Draw(
        root, [[(items[item],) for _, item in own] for own in histories], {}, ["as a log"] * (len({*map(len, histories)}) == 1), told
    )


def groups(histories: list[list[tuple[int, int]]], items: list[str]) -> Truth:
    """The items of each user, those of one time together and sorted."""
    whole = []
    for own in histories:
        times = sorted({time for time, _ in own})
        whole.append([tuple(sorted(items[item].removesuffix(".0") for time, item in own if time == one)) for one in times])
    return whole


def line(fields: list[str], separator: str, quotes: str) -> str:
    if quotes == "none":
        return separator.join(fields)
    out = io.StringIO()
    csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL if quotes == "all" else csv.QUOTE_MINIMAL, lineterminator="").writerow(
        fields
    )
    return out.getvalue()


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def read(draw: Draw) -> list[list[str]]:
    """The items of each user, as the reader finds them. UserError where it refuses."""
    data = open_interactions(**interactions_options(draw.root, **draw.options))
    found = data.held_out["test"].inputs.histories
    names = ["", *data.item_names()]
    return [[names[item] for item in found.ids[first:last]] for first, last in zip(found.first, found.first[1:])]


def wrong(draw: Draw, histories: list[list[str]]) -> str:
    """What was read instead of the truth; empty where it is right."""
    return "" if is_right(draw, histories) else f"{histories[:2]} for {draw.truth[:2]}"


def is_right(draw: Draw, histories: list[list[str]]) -> bool:
    """Whether each history is one of the truth, but for the order within one time."""
    left = dict.fromkeys((repr(own) for own in draw.truth), 0)
    for own in draw.truth:
        left[repr(own)] += 1
    for items in histories:
        match = next((own for own in draw.truth if left[repr(own)] and _fits(own, items)), None)
        if match is None:
            return False
        left[repr(match)] -= 1
    return not any(left.values())


def _fits(own: list[tuple[str, ...]], items: list[str]) -> bool:
    sizes = [len(group) for group in own]
    if sum(sizes) != len(items):
        return False
    place = 0
    for group in own:
        if tuple(sorted(items[place : place + len(group)])) != group:
            return False
        place += len(group)
    return True
