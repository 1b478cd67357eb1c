"""Charts of a run: its learning curve, who holds what, and where an iteration's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from recsys_lab.plan import ShardingPlan
from recsys_lab.report.charts import LEGEND, Chart, colour
from recsys_lab.units import human_bytes

#: Beyond this many ranks a bar stands for a host.
MOST_BARS = 1024
OPEN, LIMIT = "rgba(128,128,128,0.35)", "#c0392b"


def learning_curve(rows: Sequence[Mapping[str, float | None]], best_auc: float | None = None) -> list[Chart]:
    """Training loss and validation AUC, or NDCG@10 of held-out items, over steps. None where nothing was logged."""
    loss, auc, ndcg = (_points(rows, metric) for metric in ("train_loss", "validation_auc", "validation_ndcg_10"))
    shown = (("training loss", loss, None), ("validation AUC", auc, best_auc), ("validation NDCG@10", [] if auc else ndcg, None))
    return [_curve(i, title, points, best) for i, (title, points, best) in enumerate(shown) if points]


def _points(rows: Sequence[Mapping[str, float | None]], metric: str) -> list[tuple[float, float]]:
    """(step, value) where there are both."""
    return [(step, value) for row in rows if (step := row["step"]) is not None and (value := row.get(metric)) is not None]


def _curve(place: int, title: str, points: Sequence[tuple[float, float]], best: float | None) -> Chart:
    line = {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= 60 else "lines",
        "name": title,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "line": {"color": colour(place)},
        "hovertemplate": f"step %{{x:,}}: {title} %{{y:.5f}}<extra></extra>",
    }
    layout: dict[str, Any] = {"xaxis": {"title": {"text": "step"}, "rangemode": "tozero"}, "showlegend": False}
    data: list[dict[str, Any]] = [line]
    if best is not None:
        ends: dict[str, Any] = {
            "x": [0, max(x for x, _ in points)],
            "y": [best, best],
            "mode": "lines",
            "line": {"color": "#7f7f7f", "dash": "dash"},
        }
        said = f"best reachable {best:.4f}"
        data.append({"type": "scatter", "name": said, **ends, "hovertemplate": f"{said}<extra></extra>"})
        layout |= {"showlegend": True, "legend": LEGEND}
    return Chart(f"curve-{place}", title, data, layout, tall=300)


def gauge(used: float, limit: float) -> str:
    """A level bar, as HTML, of the fullest rank. It shows what lasts from step to step in what a plan may fill of that rank."""
    said = f"fullest rank in all: {human_bytes(used)} of {human_bytes(limit)}, {used / limit:.1%} (weights, optimizer state, dense arch)"
    return (
        f'<p><b>{escape(said)}</b></p><meter min="0" max="{max(limit, used):.0f}" high="{limit:.0f}" value="{used:.0f}">'
        f"{used / limit:.1%}</meter>"
    )


def rank_weights(plan: ShardingPlan, name: str, limit_bytes: float | None = None) -> Chart:
    """One bar a rank: its table weights, coloured by scheme. Beyond `MOST_BARS` ranks a bar is a host, its fullest rank.

    The limit is drawn where the weights come near it.
    """
    held = _held_by_scheme(plan)
    by_host = plan.world_size > MOST_BARS
    bars = _fullest_of_hosts(held, plan) if by_host else held
    each = 1 if by_host else plan.ranks_per_host
    names = [f"host {i}, its fullest rank" if by_host else f"rank {i}, host {i // each}" for i in range(len(bars))]
    schemes = list(dict.fromkeys(p.scheme for p in plan.placements))
    data = [
        {
            "type": "bar",
            "name": scheme.replace("_", " "),
            "x": list(range(len(bars))),
            "y": [bar.get(scheme, 0) for bar in bars],
            "customdata": [f"{name}<br>{scheme}: {human_bytes(bar.get(scheme, 0))}" for name, bar in zip(names, bars)],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": colour(i)},
        }
        for i, scheme in enumerate(schemes)
    ]
    most = max(sum(bar.values()) for bar in bars)
    unit = "host" if by_host else "rank"
    layout: dict[str, Any] = {
        "barmode": "stack",
        "showlegend": True,
        "legend": LEGEND,
        "xaxis": {"title": {"text": unit if plan.hosts == 1 or by_host else "rank; a line where a host begins"}, **_host_ticks(plan, each)},
        "yaxis": {"tickformat": "~s", "ticksuffix": "B"},
    }
    if limit_bytes is not None and most > 0.25 * limit_bytes:
        line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": limit_bytes, "y1": limit_bytes, "line": {"color": LIMIT}}
        text = {"xref": "paper", "x": 1, "xanchor": "right", "y": limit_bytes, "yanchor": "bottom", "showarrow": False}
        layout |= {"shapes": [line], "annotations": [{**text, "text": f"limit {human_bytes(limit_bytes)}", "font": {"color": LIMIT}}]}
    return Chart(name, f"table weights per {unit}, at most {human_bytes(most)}", data, layout, tall=330)


def _host_ticks(plan: ShardingPlan, per_host: int) -> dict[str, Any]:
    """At most sixteen, each where a host begins."""
    every = max(1, -(-plan.hosts // 16))
    return {"tick0": 0 if per_host == 1 else -0.5, "dtick": every * per_host, **_named(plan, per_host, every), "showgrid": per_host > 1}


def _named(plan: ShardingPlan, per_host: int, every: int) -> dict[str, Any]:
    if plan.hosts == 1 or per_host == 1:
        return {"tickmode": "linear", "dtick": max(1, plan.world_size // 16) if per_host > 1 else every, "tick0": 0}
    begins = range(0, plan.hosts, every)
    return {
        "tickmode": "array",
        "tickvals": [host * per_host - 0.5 for host in begins],
        "ticktext": [str(host * per_host) for host in begins],
    }


def _held_by_scheme(plan: ShardingPlan) -> list[dict[str, int]]:
    held: list[dict[str, int]] = [{} for _ in range(plan.world_size)]
    for table, placement in zip(plan.tables, plan.placements):
        for shard in placement.shards:
            size = shard.rows * shard.cols * table.row_bytes // table.dim
            for rank in shard.ranks:
                held[rank][placement.scheme] = held[rank].get(placement.scheme, 0) + size
    return held


def _fullest_of_hosts(held: list[dict[str, int]], plan: ShardingPlan) -> list[dict[str, int]]:
    n = plan.ranks_per_host
    return [max(held[host * n : (host + 1) * n], key=lambda bar: sum(bar.values())) for host in range(plan.hosts)]


def iteration_bar(name: str, phases_ms: Mapping[str, float | None], whole_ms: float, title: str) -> Chart:
    """One bar of `whole_ms`, divided into its phases. What no phase accounts for is grey. `title` says measured or simulated."""
    known = [(phase.replace("_", " "), value, colour(i)) for i, (phase, value) in enumerate(phases_ms.items()) if value]
    rest = whole_ms - sum(value for _, value, _ in known)
    if rest > 0.005 * whole_ms:
        known.append(("in no phase", rest, OPEN))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": f"{phase} {value:,.3f} ms",
            "x": [value],
            "y": [""],
            "hovertemplate": f"{phase}: {value:,.3f} ms, {value / (whole_ms or 1):.1%}<extra></extra>",
            "marker": {"color": fill},
        }
        for phase, value, fill in known
    ]
    axes = {"xaxis": {"title": {"text": "ms"}}, "yaxis": {"fixedrange": True, "showticklabels": False}}
    return Chart(name, title, data, {"barmode": "stack", "showlegend": True, "legend": LEGEND | {"traceorder": "normal"}, **axes}, tall=230)
