"""The page's three pictures: the learning curve, who holds what, and where an iteration's time goes. Each returns SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_lab.plan import ShardingPlan
from recsys_lab.report.svg import colour, dots, legend, line, nice_bytes, nice_ticks, polyline, rect, svg, text, tick_text
from recsys_lab.units import human_bytes

WIDTH = 860
#: Beyond this many ranks a bar stands for a host.
MOST_BARS = 128


def learning_curve(rows: Sequence[Mapping[str, float | None]], best_auc: float | None = None) -> str | None:
    """Training loss and validation AUC, or NDCG@10 of held-out items, over steps, one panel each; None where there is neither."""
    loss, auc, ndcg = (_points(rows, metric) for metric in ("train_loss", "validation_auc", "validation_ndcg_10"))
    shown = (("training loss", loss, None), ("validation AUC", auc, best_auc), ("validation NDCG@10", [] if auc else ndcg, None))
    panels = [(title, points, best) for title, points, best in shown if points]
    if not panels:
        return None
    width = WIDTH / len(panels) if len(panels) > 1 else WIDTH
    last = max(x for _, points, _ in panels for x, _ in points)
    parts = [
        _panel(i * width, width, title, points, last, best, colour(i), dotted=title != "training loss")
        for i, (title, points, best) in enumerate(panels)
    ]
    return svg(WIDTH, 250, parts, "learning curve: " + " and ".join(title for title, _, _ in panels))


def _points(rows: Sequence[Mapping[str, float | None]], metric: str) -> list[tuple[float, float]]:
    """(step, value) where there are both."""
    return [(step, value) for row in rows if (step := row["step"]) is not None and (value := row.get(metric)) is not None]


def _panel(
    left: float, width: float, title: str, points: Sequence[tuple[float, float]], last: float, best: float | None, stroke: str, dotted: bool
) -> str:
    ys = [y for _, y in points] + ([best] if best is not None else [])
    ticks = nice_ticks(min(ys), max(ys))
    x0, x1, y0, y1 = left + 58, left + width - 16, 214, 28
    steps = nice_ticks(0, max(last, 1), 4)
    across, low, high = max(steps[-1], 1), ticks[0], ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        return x0 + (x1 - x0) * x / across, y0 - (y0 - y1) * (y - low) / (high - low)

    parts = [text(x0, 14, title, css="strong")]
    for tick in ticks:
        y = at(0, tick)[1]
        parts += [line(x0, y, x1, y, "grid"), text(x0 - 6, y + 4, tick_text(tick, ticks), "end")]
    parts += [text(at(tick, low)[0], y0 + 16, tick_text(tick, steps), "end" if tick == steps[-1] else "middle") for tick in steps]
    parts += [text((x0 + x1) / 2, y0 + 32, "step", "middle"), line(x0, y0, x1, y0, "axis")]
    if best is not None:
        y = at(0, best)[1]
        parts += [line(x0, y, x1, y, "fullest"), text(x1, y - 5, f"best reachable {best:.4f}", "end")]
    drawn = [at(x, y) for x, y in points]
    return "".join(parts) + polyline(drawn, stroke) + (dots(drawn, stroke) if dotted and len(drawn) <= 60 else "")


def plan_picture(plan: ShardingPlan, limit_bytes: float | None = None, fullest_bytes: float | None = None) -> str:
    """One bar a rank, grouped by host: its table weights, coloured by scheme. Above, how full the fullest rank is in all.

    `limit_bytes`: what a plan may fill of a rank. `fullest_bytes`: what lasts from step to step on the fullest rank, in all.
    The limit is drawn among the bars where the weights come near it. Beyond 128 ranks a bar is a host, its fullest rank.
    """
    held = _held_by_scheme(plan)
    by_host = plan.world_size > MOST_BARS
    bars = _fullest_of_hosts(held, plan) if by_host else held
    schemes = list(dict.fromkeys(p.scheme for p in plan.placements))
    most = max(sum(bar.values()) for bar in bars)
    drawn_limit = limit_bytes if limit_bytes is not None and most > 0.25 * limit_bytes else None
    gauge, y1 = _gauge(fullest_bytes, limit_bytes)
    x0, x1, height = 66.0, WIDTH - 2.0, 180.0
    y0 = y1 + 26 + height
    ticks = nice_bytes(max(most, drawn_limit or 0))
    top = max(ticks[-1], drawn_limit or 0)
    unit = "host (its fullest rank)" if by_host else "rank"
    parts = [gauge, text(x0, y1 + 12, f"table weights per {unit}, at most {human_bytes(most)}", css="strong")]
    for tick in ticks:
        y = y0 - height * tick / top
        parts += [line(x0, y, x1, y, "grid"), text(x0 - 6, y + 4, human_bytes(tick), "end")]
    parts += _bars(bars, plan, schemes, by_host, (x0, x1, y0, height, top))
    if drawn_limit:
        y = y0 - height * drawn_limit / top
        parts += [line(x0, y, x1, y, "limit"), text(x1, y - 5, f"limit {human_bytes(drawn_limit)}", "end")]
    drawn, took = legend(x0, y0 + 58, [(scheme.replace("_", " "), colour(i)) for i, scheme in enumerate(schemes)], x1 - x0)
    return svg(WIDTH, y0 + 48 + took, [*parts, drawn], f"table weights per {unit}: at most {human_bytes(most)}")


def _gauge(used: float | None, limit: float | None) -> tuple[str, float]:
    """A level bar of `used` in `limit`, and where it ends; nothing where either is unknown."""
    if used is None or limit is None:
        return "", 0.0
    x0, x1 = 66.0, WIDTH - 2.0
    parts_of_it = "weights, optimizer state, dense part"
    words = f"fullest rank in all: {human_bytes(used)} of {human_bytes(limit)}, {used / limit:.1%} ({parts_of_it})"
    over = "var(--limit)" if used > limit else colour(4)
    parts = [
        text(x0, 12, words, css="strong"),
        rect(x0, 20, x1 - x0, 12, "var(--open)"),
        rect(x0, 20, (x1 - x0) * min(used / limit, 1), 12, over),
    ]
    return "".join(parts), 52.0


def _bars(
    bars: Sequence[Mapping[str, int]], plan: ShardingPlan, schemes: Sequence[str], by_host: bool, frame: tuple[float, ...]
) -> list[str]:
    x0, x1, y0, height, top = frame
    hosts = plan.hosts
    per_host = 1 if by_host else plan.ranks_per_host
    gap = 0 if by_host else min(14.0, (x1 - x0) / hosts * 0.15)
    slot = min((x1 - x0 - gap * hosts) / (hosts * per_host), 180)
    parts = []
    for index, bar in enumerate(bars):
        host = index // per_host
        x = x0 + gap / 2 + host * (per_host * slot + gap) + (index % per_host) * slot
        y = y0
        for scheme in schemes:
            if size := bar.get(scheme, 0):
                tall = height * size / top
                y -= tall
                name = f"host {index}" if by_host else f"rank {index}"
                parts.append(
                    rect(x + slot * 0.06, y, slot * 0.88, tall, colour(schemes.index(scheme)), f"{name}, {scheme}: {human_bytes(size)}")
                )
        if slot >= 16 and not by_host:
            parts.append(text(x + slot / 2, y0 + 14, str(index), "middle"))
    every = max(1, -(-hosts // 12))
    for host in range(0, hosts, every):
        start = x0 + gap / 2 + host * (per_host * slot + gap)
        wide = per_host * slot
        parts.append(line(start, y0 + 19, start + wide, y0 + 19, "axis"))
        words = f"host {host}" if (wide + gap) * every >= 56 else str(host)
        parts.append(text(start + wide / 2, y0 + 34, words, "middle" if start + wide / 2 > x0 + 20 else "start"))
    return [line(x0, y0, x1, y0, "axis"), *parts]


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


def iteration_bar(phases_ms: Mapping[str, float | None], whole_ms: float, title: str) -> str:
    """One bar of `whole_ms`, divided into its phases; what no phase accounts for is left open. `title` says measured or simulated."""
    known = [(name.replace("_", " "), value) for name, value in phases_ms.items() if value]
    total = max(sum(value for _, value in known), whole_ms) or 1.0
    x0, x1, y, tall = 0.0, WIDTH - 2.0, 24.0, 30.0
    fills = {name: colour(i) for i, (name, _) in enumerate(known)}
    parts = [text(x0, 14, title, css="strong")]
    x = x0
    for name, value in known:
        wide = (x1 - x0) * value / total
        parts.append(rect(x, y, wide, tall, fills[name], f"{name}: {value:,.3f} ms"))
        x += wide
    rest = whole_ms - sum(value for _, value in known)
    entries = [(f"{name} {value:,.3f} ms", fills[name]) for name, value in known]
    if rest > 0.005 * whole_ms:
        parts.append(rect(x, y, x1 - x, tall, "var(--open)", f"in no phase: {rest:,.3f} ms"))
        entries.append((f"in no phase {rest:,.3f} ms", "var(--open)"))
    drawn, took = legend(x0, y + tall + 20, entries, x1 - x0)
    return svg(WIDTH, y + tall + 12 + took, [*parts, drawn], title)
