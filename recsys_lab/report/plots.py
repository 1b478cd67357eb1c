"""Charts of a run: its learning curve, who holds what, and where an iteration's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from recsys_lab.plan import ShardingPlan
from recsys_lab.report.charts import (
    LETTER,
    LIMIT,
    LONG_NOTE,
    OPEN,
    SOFT,
    Chart,
    bar,
    box,
    chart,
    colour,
    drawing,
    legend,
    legend_height,
    limit_of,
    prefixed,
    tip,
)
from recsys_lab.report.memory import MEMORY, MEMORY_PARTS, gb
from recsys_lab.units import GB, human_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Beyond this many ranks a bar stands for a host. Beyond so many bars they touch, and only the fullest is named.
MOST_BARS, MOST_NAMED = 1024, 64
#: Ticks where hosts begin.
MOST_TICKS = 16
#: A loss that diverged beyond it, or to nan, is no point of a curve.
LARGEST_VALUE = 1e100
#: Points of a curve that are marked.
MOST_MARKS = 60


def learning_curve(rows: Sequence[Mapping[str, float | None]], best_auc: float | None = None) -> list[Chart]:
    """Training loss and validation AUC, or NDCG@10 of held-out items, over steps. None where nothing was logged."""
    loss, auc, ndcg = (_points(rows, metric) for metric in ("train_loss", "validation_auc", "validation_ndcg_10"))
    shown = (("training loss", loss, None), ("validation AUC", auc, best_auc), ("validation NDCG@10", [] if auc else ndcg, None))
    return [_curve(i, title, points, best) for i, (title, points, best) in enumerate(shown) if points]


def _points(rows: Sequence[Mapping[str, float | None]], metric: str) -> list[tuple[float, float]]:
    """(step, value) where there are both, and an axis has room for the value."""
    pairs = [(step, value) for row in rows if (step := row["step"]) is not None and (value := row.get(metric)) is not None]
    return [(step, value) for step, value in pairs if abs(value) < LARGEST_VALUE]


def _curve(index: int, title: str, points: Sequence[tuple[float, float]], best: float | None) -> Chart:
    steps, values = zip(*points)
    with drawing(height=250, bottom=42 + (legend_height([title]) if best is not None else 0)) as axes:
        for line in axes.plot(steps, values, color=colour(index), marker="o" if len(points) <= MOST_MARKS else None, markersize=3.5):
            tip(line, f"{title}, last {values[-1]:.5f} at step {steps[-1]:,.0f}")
        if best is not None:
            axes.axhline(best, color=SOFT, linestyle="--", linewidth=1.2, label=f"best reachable {best:.4f}")
            legend(axes, [title])
        axes.set(xlabel="step", xlim=(0, None))
        return chart(axes, f"curve-{index}", title)


def gauge(used: float, limit: float) -> str:
    """A level bar, as HTML: the memory of the fullest rank, of what it may fill."""
    words = f"{MEMORY}: {gb(used)} of {limit / GB:g} GB, {used / limit:.1%} ({MEMORY_PARTS})"
    return (
        f'<p><b>{escape(words)}</b></p><meter min="0" max="{max(limit, used):.0f}" high="{limit:.0f}" value="{used:.0f}">'
        f"{used / limit:.1%}</meter>"
    )


def rank_weights(plan: ShardingPlan, name: str, limit_bytes: float | None = None) -> Chart:
    """One bar a rank: its table weights, coloured by scheme. Beyond `MOST_BARS` ranks a bar is a host, its fullest rank.

    The limit is drawn where the weights come near it.
    """
    by_host = plan.world_size > MOST_BARS
    bars = fullest_of_hosts(plan) if by_host else weights_by_scheme(plan)
    schemes = list(dict.fromkeys(placement.scheme for placement in plan.placements))
    names = [scheme.replace("_", " ") for scheme in schemes]
    fullest, unit = max(sum(bar.values()) for bar in bars), "host" if by_host else "rank"
    near = limit_bytes is not None and fullest > 0.25 * limit_bytes
    with drawing(height=270 + legend_height(names), bottom=42 + legend_height(names)) as axes:
        below = [0] * len(bars)
        for i, scheme in enumerate(schemes):
            sizes = [bar.get(scheme, 0) for bar in bars]
            _stacked(axes, sizes, below, scheme, colour(i), f"{unit} " if not by_host else "host, its fullest rank, ")
            below = [before + size for before, size in zip(below, sizes)]
        if near and limit_bytes is not None:
            axes.axhline(limit_bytes, color=LIMIT)
            axes.text(len(bars) - 0.5, limit_bytes, f"limit {human_bytes(limit_bytes)}", ha="right", va="bottom", color=LIMIT)
        _host_ticks(axes, plan, by_host)
        where = unit if plan.hosts == 1 or by_host else "rank; a line where a host begins"
        axes.set(xlabel=where, xlim=(-0.5, len(bars) - 0.5), ylim=(0, 1.1 * max(fullest, near and limit_bytes or 1)))
        prefixed(axes.yaxis, "B")
        legend(axes, names, [colour(i) for i in range(len(names))])
        return chart(axes, name, f"table weights per {unit}, at most {human_bytes(fullest)}")


def _stacked(axes: Axes, sizes: Sequence[int], below: Sequence[int], scheme: str, fill: str, unit: str) -> None:
    """The part of a scheme of every bar, on what lies `below`."""
    words = scheme.replace("_", " ")
    if len(sizes) <= MOST_NAMED:
        for place, (size, before) in enumerate(zip(sizes, below)):
            box(axes, place - 0.43, before, 0.86, size, fill, f"{unit}{place}\n{words}: {human_bytes(size)}")
        return
    edges, tops = [place - 0.5 for place in range(len(sizes) + 1)], [size + before for size, before in zip(sizes, below)]
    most = max(sizes)
    steps = axes.stairs(tops, edges, baseline=below, fill=True, color=fill, linewidth=0)
    tip(steps, f"{words}: {human_bytes(min(sizes))} to {human_bytes(most)}, most on {unit}{sizes.index(most)}")


def _host_ticks(axes: Axes, plan: ShardingPlan, by_host: bool) -> None:
    """At most `MOST_TICKS`, each where a host begins. Of one host, at ranks."""
    axes.grid(visible=False, axis="x")
    if plan.hosts == 1 or by_host:
        axes.locator_params(axis="x", integer=True)
        return
    begins = range(0, plan.hosts, max(1, -(-plan.hosts // MOST_TICKS)))
    places = [host * plan.ranks_per_host for host in begins]
    axes.set_xticks([place - 0.5 for place in places], [str(place) for place in places])
    axes.grid(visible=True, axis="x")


def weights_by_scheme(plan: ShardingPlan) -> list[dict[str, int]]:
    """Of each rank, the bytes of its table weights by scheme."""
    by_rank: list[dict[str, int]] = [{} for _ in range(plan.world_size)]
    for table, placement in zip(plan.tables, plan.placements):
        for shard in placement.shards:
            size = shard.rows * shard.cols * table.row_bytes // table.dim
            for rank in shard.ranks:
                by_rank[rank][placement.scheme] = by_rank[rank].get(placement.scheme, 0) + size
    return by_rank


def fullest_of_hosts(plan: ShardingPlan) -> list[dict[str, int]]:
    """The same of the fullest rank of each host."""
    by_rank, n = weights_by_scheme(plan), plan.ranks_per_host
    return [max(by_rank[host * n : (host + 1) * n], key=lambda bar: sum(bar.values())) for host in range(plan.hosts)]


def bound_by(saved_ms: Mapping[str, float], whole_ms: float) -> Chart:
    """A bar for each part that would shorten the iteration at twice the speed, the most helpful first."""
    percents = {part: 100 * ms / whole_ms for part, ms in saved_ms.items()}
    with drawing(height=52 + 24 * len(percents), left=16 + LETTER * max(map(len, percents)), bottom=42) as axes:
        limit = limit_of(list(percents.values()))
        for place, (part, percent) in enumerate(percents.items()):
            words = f"{part}: {saved_ms[part]:,.3f} ms or {percent:.1f} % less at twice the speed"
            bar(axes, place, percent, limit, colour(0), words, f"{percent:.0f} %")
        axes.set(xlabel="% less time", xlim=(0, 1.2 * min(limit, max(percents.values()))), ylim=(len(percents) - 0.5, -0.5))
        axes.set_yticks(range(len(percents)), list(percents))
        axes.grid(visible=False, axis="y")
        return chart(axes, "bound-by", "simulated: what twice the speed would save", LONG_NOTE if max(percents.values()) > limit else "")


def iteration_bar(name: str, phases_ms: Mapping[str, float | None], whole_ms: float, title: str) -> Chart:
    """One bar of `whole_ms`, divided into its phases. What no phase accounts for is grey. `title` says measured or simulated."""
    parts = phase_parts(phases_ms, whole_ms)
    names = [f"{phase} {ms:,.3f} ms" for phase, ms, _ in parts] or [""]
    with drawing(height=110 + legend_height(names), left=14, bottom=42 + legend_height(names)) as axes:
        begin = 0.0
        for phase, ms, fill in parts:
            box(axes, begin, 0, ms, 1, fill, f"{phase}: {ms:,.3f} ms, {ms / (whole_ms or 1):.1%}")
            begin += ms
        axes.set(xlabel="ms", yticks=[], xlim=(0, max(whole_ms, begin) or 1), ylim=(-0.1, 1.1))
        legend(axes, names, [fill for *_, fill in parts])
        return chart(axes, name, title)


def phase_parts(phases_ms: Mapping[str, float | None], whole_ms: float) -> list[tuple[str, float, str]]:
    """(phase, ms, colour) of every phase that takes time, and what no phase accounts for."""
    parts = [(phase.replace("_", " "), ms, colour(i)) for i, (phase, ms) in enumerate(phases_ms.items()) if ms]
    rest = whole_ms - sum(ms for _, ms, _ in parts)
    return [*parts, ("in no phase", rest, OPEN)] if rest > 0.005 * whole_ms else parts
