"""Tables that are larger than memory, in a report. It shows what is expected of their caches, and what was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, HOST_PAGED, UNCACHED
from recsys_lab.record.run_folder import Run
from recsys_lab.report.charts import Chart, chart, colour, drawing, legend, legend_height, tip
from recsys_lab.report.sections import Table, ms, size
from recsys_lab.units import human_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Tables larger than memory"
#: Where rows are, by the kind of a store.
WHERE = {
    HOST: "host memory",
    HOST_PAGED: "host memory, by pages",
    HOST_CACHED: "host memory",
    DISK_CACHED: "disk",
    DISK_HOST_CACHED: "disk, cached in host memory",
}
SO_FAR = "measured hits stand beside those expected of the same steps, in which caches fill"
#: An iteration is as short as one with all tables in memory, if it takes at most so much longer.
AS_SHORT = 0.02
#: Ticks are at least this part of the axis apart.
APART = 0.1
STORES_WIDTH = 640


def stores(run: Run) -> Table | None:
    """One row a table with a store: where its rows are, what of them is cached, and the hits. None without such tables."""
    facts = (run.result["plan"] or {}).get("stores")
    if not facts:
        return None
    counted = hits(run) if run.plan_here is None else {}
    columns: tuple[str, ...] = ("table", "rows are in", "cached", "at least", "hits", "moved")
    notes = [
        "cached: share of a table's rows in the ranks' memory; at least: the least share that works",
        "hits: of the rows that a batch reads, each counted once, those in a cache; expected in the long run",
        "moved: bytes of all ranks in an iteration, both ways",
    ]
    if counted:
        columns += ("measured hits", "expected hits")
        notes.append(SO_FAR)
    rows = []
    for one in facts:
        shares = tuple(_share(one[key]) for key in ("cached_share", "least_share", "hit_rate"))
        shares = ("none", "none", "") if one["kind"] in UNCACHED else shares
        row = (one["table"], WHERE.get(one["kind"], one["kind"]), *shares, size(one["bytes_moved"]))
        rows.append(row + (_rates(counted, one["table"]) if counted else ()))
    return Table(TITLE, columns, tuple(rows), "; ".join(notes), columns[2:])


def stores_here(run: Run) -> Table | None:
    """The caches of the plan that trained here, where that is another. None without any."""
    counted = hits(run)
    if run.plan_here is None or not counted:
        return None
    columns = ("table", "rows are in", "cached", "measured hits", "expected hits")
    placed = {placement.table: placement.store for placement in run.plan_here.placements}
    shown = [(name, store) for name in counted if (store := placed.get(name)) is not None]
    rows = [(name, WHERE[store.kind], _share(store.cached_share), *_rates(counted, name)) for name, store in shown]
    return Table(f"{TITLE}, in the plan that trained here", columns, tuple(rows), SO_FAR, columns[2:])


def hits(run: Run) -> dict[str, tuple[float | None, float | None]]:
    """By table with a cache, the measured share of hits, and the one expected of the same steps. Both are over all ranks."""
    ranks = (run.result["measured"] or {}).get("stores") or []
    names = dict.fromkeys(name for rank in ranks for name in rank)
    of_table = {name: [rank[name] for rank in ranks if name in rank] for name in names}
    return {name: (_rate(own, "hits", "misses"), _rate(own, "hits_expected", "misses_expected")) for name, own in of_table.items()}


def _rate(ranks: list[Mapping[str, float]], hit: str, missed: str) -> float | None:
    hits, misses = (sum(rank.get(key, 0.0) for rank in ranks) for key in (hit, missed))
    return hits / (hits + misses) if hits + misses else None


def _rates(counted: Mapping[str, tuple[float | None, float | None]], name: str) -> tuple[str, ...]:
    return tuple("" if rate is None else _share(rate) for rate in counted.get(name, (None, None)))


def _share(share: float) -> str:
    """With the digits that a small one needs."""
    return f"{share:.1%}" if share >= 0.01 or not share else f"{100 * share:.2g}%"


def store_curve(run: Run) -> Chart | None:
    """Memory a rank against the simulated iteration; None where there is none, or where it would stand beside a measurement."""
    if run.stores is None or run.hides_simulation:
        return None
    points = run.stores["points"]
    marked, ticks = _marked(points), _ticks([point["memory_gb"] for point in points])
    names = ["other budgets", *(name for _, name, _ in marked)]
    below = 62 + legend_height(names, STORES_WIDTH)
    with drawing(STORES_WIDTH, 270 + below, bottom=below) as axes:
        axes.plot([point["memory_gb"] for point in points], [point["iteration_ms"] for point in points], color=colour(0))
        for point in points:
            _point(axes, point, "other budgets" if point is points[0] else "", "o", 4, colour(0))
        for place, (point, name, shape) in enumerate(marked):
            _point(axes, point, name, shape, 10, colour(place + 1))
        axes.set(ylabel="ms an iteration", ylim=(0, None), xlabel="memory a rank, and the share of rows cached there")
        axes.set_xticks(
            [points[i]["memory_gb"] for i in ticks],
            [f"{human_bytes(points[i]['memory_gb'] * 1e9)}\n{_share(points[i]['cached_share'])}" for i in ticks],
        )
        legend(axes, names)
        title = f"Iteration against memory for caches (simulated, {run.stores['cluster']}, profile {run.stores['profile']})"
        return chart(axes, "store-curve", title, curve_words(points))


def _point(axes: Axes, point: Mapping[str, Any], name: str, shape: str, size: float, fill: str) -> None:
    (mark,) = axes.plot(point["memory_gb"], point["iteration_ms"], shape, markersize=size, color=fill, label=name or None)
    tip(mark, f"{name}\n{_figures(point)}\ntables with a store: {point['tables']}".strip())


def curve_words(points: Sequence[Mapping[str, Any]]) -> str:
    """A sentence for each of three points. They are the chosen one, the least memory that works, and the least that is as good as all."""
    own = next(point for point in points if point["chosen"])
    useful, least, whole = _smallest_useful(points), points[0], points[-1]
    sentences = [
        f"This plan: {_figures(own)}.",
        f"The least memory that works: {_figures(least)}.",
        f"All tables in memory: {_figures(whole)}.",
        f"The smallest cache within {AS_SHORT:.0%} of that: {_figures(useful)}.",
        "Every point is simulated and keeps this plan's sharding; only caches differ.",
    ]
    return " ".join(sentences)


def _marked(points: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str, str]]:
    own, useful = next(point for point in points if point["chosen"]), _smallest_useful(points)
    if own is useful:
        return [(own, "this plan, the smallest useful cache", "*")]
    return [(own, "this plan", "*"), (useful, "the smallest useful cache", "D")]


def _smallest_useful(points: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first of which the iteration is nearly as short as with all tables in memory."""
    enough = points[-1]["iteration_ms"] * (1 + AS_SHORT)
    return next(point for point in points if point["iteration_ms"] <= enough or point is points[-1])


def _ticks(places: Sequence[float]) -> list[int]:
    """Of the points, those that are far enough apart on an axis to be named. The last one is."""
    apart, named = APART * (places[-1] - places[0]), [len(places) - 1]
    for number in range(len(places) - 2, -1, -1):
        if places[named[-1]] - places[number] >= apart:
            named.append(number)
    return named[::-1]


def _figures(point: Mapping[str, Any]) -> str:
    return f"{human_bytes(point['memory_gb'] * 1e9)} a rank, {_share(point['cached_share'])} of rows cached, {ms(point['iteration_ms'])}"
