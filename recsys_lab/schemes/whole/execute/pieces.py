"""What travels in which call: the columns of whole tables, by the rank that looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Pieces:
    """Of a sample's pooled row, in its order: of each piece the rank that looks it up, and its columns."""

    roots: tuple[int, ...]
    widths: tuple[int, ...]

    def of(self, rank: int) -> tuple[int, ...]:
        """Widths of the pieces that `rank` looks up."""
        return tuple(width for root, width in zip(self.roots, self.widths) if root == rank)

    @cached_property
    def fused(self) -> Pieces:
        """One piece a rank."""
        roots = tuple(dict.fromkeys(self.roots))
        return Pieces(roots, tuple(sum(self.of(root)) for root in roots))


def pieces_of(tables_of_ranks: Sequence[Sequence[int]]) -> Pieces:
    """From the columns of each table of each rank: a piece a table."""
    placed = [(rank, width) for rank, tables in enumerate(tables_of_ranks) for width in tables if width]
    return Pieces(tuple(rank for rank, _ in placed), tuple(width for _, width in placed))
