"""Keeps the slowest tests of a run: `pytest --durations=200 --durations-min=0.5 | python -m tests.slowest` writes tests/slowest.tsv."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

LISTED = Path(__file__).with_name("slowest.tsv")
_LINE = re.compile(r"^([\d.]+)s (call|setup|teardown) +(\S.*)$")


def slowest(lines: Iterable[str]) -> list[tuple[float, str, str]]:
    """(seconds, part, test) of each line of pytest's table, in its order."""
    return [(float(match[1]), match[2], match[3]) for line in lines if (match := _LINE.match(line.rstrip()))]


def main() -> None:
    """Passes on what pytest prints."""
    lines = []
    for line in sys.stdin:
        sys.stdout.write(line)
        lines.append(line)
    rows = [f"{seconds:.1f}\t{part}\t{test}" for seconds, part, test in slowest(lines)]
    LISTED.write_text("\n".join(["seconds\tpart\ttest", *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
