"""Which way each table is cut. The paper leaves that to who trains. Here it is the least cost in all with no piece above a limit."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.schemes.whole import COLUMN_WISE
from recsys_lab.sharders.neo.cuts import Cut, Size

#: Limits that are tried, as shares of what a rank would cost if all were even. Small pieces balance better, and cost more in all.
LIMITS = (float("inf"), 1.0, 1 / 2, 1 / 4, 1 / 8)
#: Blocks of rows are rounded up, and each shard of columns has a state a row under some optimizers.
MORE_BYTES = 1.1


def with_one_width(options: Sequence[Sequence[Cut]]) -> list[list[list[Cut]]]:
    """`options` of tables of sequences, once for each width that column pieces may have: TorchRec has one width for all of them."""
    widths = {cut.pieces[0].cols for cuts in options for cut in cuts if cut.scheme == COLUMN_WISE}
    by_width = [[[c for c in cuts if c.scheme != COLUMN_WISE or c.pieces[0].cols == width] for cuts in options] for width in sorted(widths)]
    return by_width or [[list(cuts) for cuts in options]]


def cheapest_cuts(options: Sequence[Sequence[Cut]], limit_ms: float, room: Size) -> list[Cut]:
    """A cut for each table. It is the cheapest over all ranks of those whose pieces fit a rank and cost it no more than `limit_ms`.

    Where no cut stays below the limit, it is the one with the smallest largest piece. Where none fits a rank, it has the fewest bytes.
    """
    return [_of_table(cuts, limit_ms, room) for cuts in options]


def smallest(options: Sequence[Sequence[Cut]]) -> list[Cut]:
    """The finest cuts, whatever they cost, but none that fills ranks more than the others in all.

    It is a last resort where memory is short.
    """
    finest = []
    for cuts in options:
        least = min(cut.total_bytes for cut in cuts)
        small = [cut for cut in cuts if cut.total_bytes <= MORE_BYTES * least]
        finest.append(min(small, key=lambda cut: (cut.largest_bytes_in_all, cut.total_ms)))
    return finest


def _of_table(cuts: Sequence[Cut], limit_ms: float, room: Size) -> Cut:
    fitting = [cut for cut in cuts if all(piece.size.fits(room) for piece in cut.pieces)]
    if not fitting:
        return min(cuts, key=lambda cut: (cut.largest_bytes, cut.total_ms))
    below = [cut for cut in fitting if cut.largest_ms <= limit_ms]
    if below:
        return min(below, key=lambda cut: (cut.total_ms, len(cut.pieces)))
    return min(fitting, key=lambda cut: (cut.largest_ms, cut.total_ms))
