"""What a plan's reasons are: kept as figures, explained in sentences and in rows of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recsys_lab.sharders.flexshard.flips import Flip
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED
from recsys_lab.units import human_bytes

#: What decides a boundary behind the last row.
ALL_ROWS = "there are no more rows"
#: Of `alternative_rows`. Time is simulated: of the tables that are placed by row, on one rank, in one iteration. Memory is what the plan
#: puts on the fullest rank (recsys_lab.plan.memory).
#: `per host`: host-sharded rows; `global`: the share of look-ups that the exchange between all ranks has.
COLUMNS = ("plan", "replicated", "per host", "memory", "ms", "global")
NOTE = (
    "replicated, per host: rows of these tiers; memory: of the fullest rank, as our executor has it, not by the paper's table 2; ms: of "
    "exchange in an iteration; global: the share of look-ups that go through the exchange between all ranks."
)
TIER_WORDS = {REPLICATED: "replicated", HOST_SHARDED: "host-sharded", ROW_SHARDED: "row-sharded"}


@dataclass(frozen=True)
class Boundary:
    """`tier` begins at this row of all rows in falling frequency; `p` is that row's probability (0 behind the last row)."""

    tier: str
    row: int
    p: float
    decided_by: str
    break_point: float | None  # the p at which the two tiers cost the same, where such a point decided


@dataclass(frozen=True)
class Choice:
    """What the tables that are placed by row cost a rank in an iteration, by the cost model: simulated, not measured. `memory_bytes`: all
    that the fullest rank holds, with the dense arch.
    """

    name: str
    replicated: int
    host_sharded: int
    row_sharded: int
    memory_bytes: float
    communication_ms: float
    global_share: float  # of look-ups, through the exchange between all ranks


@dataclass(frozen=True)
class Reasons:
    """Of one plan. `pooled`: tables whose rows are pooled, which gain less than their tiers suggest (see `plan`)."""

    setting: dict[str, Any]
    boundaries: tuple[Boundary, ...]
    chosen: Choice
    alternatives: tuple[Choice, ...]
    flips: tuple[Flip, ...]
    pooled: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Infinite values, of links that carry nothing, become null."""
        return _finite(asdict(self))

    def explanation(self) -> dict[str, Any]:
        """For people: sentences, and a table of this plan and the others."""
        rows = [list(row) for row in alternative_rows(self)]
        return {"sentences": list(sentences(self)), "columns": list(COLUMNS), "rows": rows, "note": NOTE}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reasons:
        return Reasons(
            dict(data["setting"]),
            tuple(Boundary(**b) for b in data["boundaries"]),
            Choice(**data["chosen"]),
            tuple(Choice(**c) for c in data["alternatives"]),
            tuple(Flip(**f) for f in data["flips"]),
            tuple(data["pooled"]),
        )


def sentences(reasons: Reasons) -> tuple[str, ...]:
    """In plain words: the tiers and what decided them, what they save, what would flip them."""
    chosen, baseline = reasons.chosen, reasons.alternatives[0]
    lines = [_tiers(reasons)] + [_begins(boundary) for boundary in reasons.boundaries if boundary.decided_by != ALL_ROWS]
    lines.append(
        f"{1 - chosen.global_share:.1%} of the look-ups leave the exchange between all ranks. All exchanges of these tables take "
        f"{chosen.communication_ms:.3g} ms an iteration (simulated), {_change(chosen.communication_ms, baseline.communication_ms)} "
        f"row-wise sharding, with {_memory(chosen.memory_bytes - baseline.memory_bytes)}."
    )
    faster = [c for c in reasons.alternatives[1:] if c.communication_ms < chosen.communication_ms * (1 - 1e-3)]
    lines += [_faster(choice, chosen) for choice in faster]
    lines += [_flip(flip) for flip in reasons.flips if math.isfinite(flip.now)]
    if reasons.pooled:
        names = ", ".join(reasons.pooled[:4]) + (f" and {len(reasons.pooled) - 4} more" if len(reasons.pooled) > 4 else "")
        lines.append(
            f"Pooled ({names}): tiers as if every look-up sent a row; but the exchange of pooled rows is as large with few rows as with "
            "many, so hot rows save ids and look-ups only, unless a tier gets no row at all. Times and memory here count that."
        )
    return tuple(lines)


def alternative_rows(reasons: Reasons) -> tuple[tuple[str, ...], ...]:
    """One row a plan, this one first. Columns are `COLUMNS`."""
    return tuple(
        (
            c.name,
            f"{c.replicated:,}",
            f"{c.host_sharded:,}",
            human_bytes(c.memory_bytes),
            f"{c.communication_ms:.3g}",
            f"{c.global_share:.1%}",
        )
        for c in (reasons.chosen, *reasons.alternatives)
    )


def _tiers(reasons: Reasons) -> str:
    chosen = reasons.chosen
    parts = [(chosen.replicated, "replicated"), (chosen.host_sharded, "host-sharded"), (chosen.row_sharded, "row-sharded")]
    counts = ", ".join(f"{n:,} {word}" for n, word in parts)
    return f"Rows in falling frequency: {counts} (a replica takes {reasons.setting['replica_multiplier']:g} times its weights)."


def _begins(boundary: Boundary) -> str:
    at = f", which is at p = {boundary.break_point:.3g}" if boundary.break_point is not None else ""
    return f"The {TIER_WORDS[boundary.tier]} tier begins at row {boundary.row:,} (p = {boundary.p:.3g}): {boundary.decided_by}{at}."


def _change(now: float, baseline: float) -> str:
    if not baseline:
        return "no more than"
    return f"{1 - now / baseline:.0%} less than" if now < baseline else f"{now / baseline - 1:.0%} more than"


def _memory(more_bytes: float) -> str:
    if abs(more_bytes) < 1e5:
        return "the same memory"
    return f"{human_bytes(abs(more_bytes))} {'more' if more_bytes > 0 else 'less'} memory a rank"


def _faster(choice: Choice, chosen: Choice) -> str:
    saved, more = 1 - choice.communication_ms / chosen.communication_ms, choice.memory_bytes - chosen.memory_bytes
    return f"Faster by {saved:.1%} would be {choice.name}: {choice.communication_ms:.3g} ms, with {_memory(more)}."


def _flip(flip: Flip) -> str:
    unit = f" {flip.unit}" if flip.unit else ""
    now = f"{flip.what[0].upper()}{flip.what[1:]} is {flip.now:.4g}{unit}"
    return f"{now}; {flip.side} {flip.at:.4g}{unit} {flip.effect}."


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
