"""What a decision says of ranks with hot rows: which plans die of them, how the chosen one has their tables, what a plan by hand gives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recsys_lab.decide.question import BY_HAND
from recsys_lab.decide.rows import Row

#: A planner's words on a rank that holds hot rows.
HOT_RANK = re.compile(r"on rank (\d+), .*hot rows: it (serves [^(]+) \(([^)]+)\)")


def hot_rank_words(row: Row) -> str | None:
    """Of a row that its hot rank makes not fit, such as "rank 0 serves 4.6 times the mean rank's rows: album_id 10.3 times"."""
    hot = HOT_RANK.search(row.why_not or "")
    return None if hot is None or row.fits else f"rank {hot[1]} {hot[2]}: {hot[3]}"


def hot_sentences(best: Row, rows: Sequence[Row]) -> list[str]:
    """Of the chosen row's cluster and formats. Empty where no plan dies of hot rows, and none is on file that was made by hand."""
    alike = [row for row in rows if (row.cluster, row.precision, row.optimizer) == (best.cluster, best.precision, best.optimizer)]
    said = []
    for row in alike:
        words = hot_rank_words(row)
        if words is None:
            continue
        tables = [part.split()[0] for part in words.partition(": ")[2].split(", ")]
        chosen = " and ".join(f"{table} as {best.schemes[table]}" for table in tables if table in best.schemes)
        needs = f" It needs {max(row.memory_of_ranks_gb):.1f} GB there." if row.memory_of_ranks_gb else ""
        said.append(f"{row.sharder} without dedup dies of hot rows: {words}.{needs} {best.sharder} has {chosen}.")
    for row in alike:
        if row.sharder.startswith(BY_HAND.partition("/")[2]) and row.profile == best.profile and row.name != best.name:
            said.append(f"By hand ({row.sharder}): {_figures(row, best)}.")
    return said


def _figures(row: Row, best: Row) -> str:
    if row.ms is None or best.ms is None or row.memory_gb is None:
        return row.why_not or "no figures"
    return f"{row.ms:.2f} ms and {row.memory_gb:.1f} GB on the fullest rank, {row.ms / best.ms:.2f} times the time of {best.sharder}"
