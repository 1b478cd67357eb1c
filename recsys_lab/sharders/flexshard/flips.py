"""What would have to change for a boundary between two tiers to move or to vanish."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.sharders.flexshard.allocate import Split, Trade


@dataclass(frozen=True)
class Flip:
    """`what` is `now`. On the other `side` (above | below) of `at`, `effect`."""

    what: str
    unit: str
    now: float
    side: str
    at: float
    effect: str


def flips_of(trade: Trade, split: Split) -> tuple[Flip, ...]:
    """From the break-points of section 4.2, each solved for what it depends on, at the rows where the tiers begin and end."""
    s, rows, links = trade.setting, trade.rows, trade.setting.bandwidths
    first, last = split.replicated, split.replicated + split.in_host - 1
    hottest = s.batch_size * rows.p_of(0)  # look-ups of a rank
    if s.world_size == 1 or not hottest:
        return ()
    passes = s.gradient_bytes / (s.forward_bytes + s.backward_bytes)

    def neutral_all_reduce(row: int, exchanged_gb_s: float) -> float:
        """The bandwidth at which the gradient of `row` takes as long as its look-ups take at `exchanged_gb_s`."""
        return passes * exchanged_gb_s / (s.batch_size * rows.p_of(row))

    stored = s.dtype_bytes / s.buffer_bytes  # a row in a table over the same row looked up
    multiplier = hottest / stored + s.shard_multiplier / s.world_size
    batch = (s.replica_multiplier - s.shard_multiplier / s.world_size) * stored / rows.p_of(0)
    flips = [
        Flip("a replica's memory over its weights", "", s.replica_multiplier, "above", multiplier, "no replica would save memory"),
        Flip("the batch of a rank", "samples", s.batch_size, "below", batch, "no replica would save memory"),
    ]
    if split.replicated:
        least = neutral_all_reduce(first - 1, links.a2a_global_gb_s)
        effect = "the last of the replicated rows would be faster row-sharded"
        flips.append(Flip("the all-reduce over all ranks", "GB/s", links.ar_global_gb_s, "below", least, effect))
    gain = 1 / links.a2a_global_gb_s - 1 / links.a2a_intra_gb_s
    if gain > 0 and s.hosts > 1 and s.ranks_per_host > 1 and rows.p_of(first):
        what = "the all-reduce between hosts, of a whole host"
        if split.in_host:
            effect = "the last of the host-sharded rows would be faster row-sharded"
            flips.append(Flip(what, "GB/s", links.ar_cross_gb_s, "below", neutral_all_reduce(last, 1 / gain), effect))
        effect = "no host-sharded row would be faster than a row-sharded one"
        flips.append(Flip(what, "GB/s", links.ar_cross_gb_s, "below", neutral_all_reduce(first, 1 / gain), effect))
    return tuple(flips)
