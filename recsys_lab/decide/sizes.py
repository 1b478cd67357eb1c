"""Clusters in several sizes: `h100x8..128` is 8, 16, 32, 64 and 128 devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.decide.rows import Row
from recsys_lab.errors import UserError

RANGE = re.compile(r"(?P<name>[^:]+)x(?P<first>[1-9]\d{0,8})\.\.(?P<last>[1-9]\d{0,8})(?P<rest>:.*)?")


@dataclass(frozen=True)
class SizeRange:
    """`text`: as the user wrote it, without its price. `labels`: the clusters that it stands for, the smallest first."""

    text: str
    labels: tuple[str, ...]


def sizes_of(item: str, where: str) -> tuple[SizeRange | None, list[str]]:
    """The range that `item` of a list of clusters is, and the items that it stands for: each is twice as large as the one before.

    Any other item stands for itself, and is no range. Raises UserError for a range that does not end, or ends elsewhere.
    """
    if ".." not in item:
        return None, [item]
    match = RANGE.fullmatch(item)
    allowed = "a name, x, and its first and last number of devices, such as h100x8..128"
    if match is None:
        raise UserError("not a range of sizes", where=where, given=item, allowed=allowed)
    first, last = int(match["first"]), int(match["last"])
    if last < first:
        raise UserError("a range that ends below its first size", where=where, given=item, allowed=allowed)
    sizes = [first]
    while 2 * sizes[-1] <= last:
        sizes.append(2 * sizes[-1])
    if sizes[-1] != last:
        near = " or ".join(f"{match['name']}x{first}..{size}" for size in (sizes[-1], 2 * sizes[-1]))
        raise UserError("sizes double, and do not meet the last one", where=where, given=item, allowed=near)
    labels = [f"{match['name']}x{size}" for size in sizes]
    return SizeRange(item.partition(":")[0], tuple(labels)), [label + (match["rest"] or "") for label in labels]


def smallest_sentences(ranges: Sequence[SizeRange], rows: Sequence[Row]) -> list[str]:
    """For each range, which of its sizes is the smallest that a plan fits."""
    fitting = {row.cluster for row in rows if row.fits and row.ms is not None}
    sentences = []
    for one in ranges:
        smallest = next((label for label in one.labels if label in fitting), None)
        if smallest is None:
            sentences.append(f"No size of {one.text} fits.")
        else:
            smaller = one.labels[: one.labels.index(smallest)]
            below = f"; nothing fits {', '.join(smaller)}" if smaller else ""
            sentences.append(f"The smallest cluster of {one.text} that fits is {smallest}{below}.")
    return sentences
