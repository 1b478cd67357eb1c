"""The decision as tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.decide.answer import Winner, cheapest_first
from recsys_lab.decide.fixes import LACKS
from recsys_lab.decide.hot_rows import hot_rank_words
from recsys_lab.decide.price_words import price_words
from recsys_lab.decide.rows import PLACES, Change, Row
from recsys_lab.report.memory import MEMORY, MEMORY_PARTS
from recsys_lab.report.sections import Table
from recsys_lab.units import counted, human_count

DASH = "\N{EN DASH}"
#: Rows that are shown beside the Pareto-optimal ones, unless all are asked for.
MOST_ROWS = 10
#: Characters of a word that stand below a change's name.
MOST_WORDS = 22


def rows_table(rows: Sequence[Row], winner: Winner, every: bool = False) -> Table:
    """Rows of the profile that the winner is of, the cheapest first: Pareto-optimal ones, the next ten, and the first of each cluster
    without a price; or `every` one.
    """
    profile = winner.row.profile if winner.row else None
    figures = sorted((row for row in rows if row.ms is not None and row.profile == profile), key=cheapest_first)
    first = {row.cluster: row for row in reversed(figures) if row.usd_per_1e9 is None}
    near = {id(row) for row in (*figures[:MOST_ROWS], *first.values())}
    shown = [row for row in figures if every or row.pareto or id(row) in near]
    paid = any(row.usd_per_1e9 is not None for row in figures)
    columns = (
        "combination",
        "ms",
        "samples/s",
        *(("$ per 1e9",) if paid else ("dev-hours",)),
        "GB",
        "mostly",
    )
    notes = [
        "Simulated, not measured. The second line of a figure is its 90 % interval. * Pareto-optimal: no row is both faster and cheaper.",
        f"Mostly: what takes most of the iteration. exch.: exposed embedding exchange, ms. GB: {MEMORY}, {MEMORY_PARTS}.",
    ]
    if any(row.stores for row in shown):
        places = " or ".join(dict.fromkeys(PLACES.values()))
        notes.append(f"A number {places}: tables larger than the memory that a device may use.")
    notes += price_words(figures)
    if free := sorted({row.cluster for row in figures if row.usd_per_1e9 is None}):
        named = ",".join(f"{cluster}:2.50" for cluster in free)
        apart = "such rows are compared with no other. Give" if paid else "give"
        notes.append(f"No price is known of {', '.join(free)}: {apart} dollars per device-hour, such as clusters={named}.")
    notes += _extrapolates(figures)
    if left := len(figures) - len(shown):
        notes.append(f"{left} more rows are left out: --all shows them.")
    title = "Nothing fits"
    if figures:
        fit = f"{counted(len(figures), 'combination')} that {'fit' if len(figures) > 1 else 'fits'}"
        title = f"{fit}, profile {profile}, batch {figures[0].batch:,}{_per_rank(figures)}"
    return Table(title, columns, tuple(_cells(row, paid) for row in shown), " ".join(notes), columns[1:5])


def clusters_table(rows: Sequence[Row], winner: Winner) -> Table:
    """The best row of each cluster, its cost beside that of the chosen one, and how often the cluster has the cheapest."""
    best = winner.row
    assert best is not None
    paid = best.usd_per_1e9 is not None
    cells = []
    for row in rows:
        alike = (row.usd_per_1e9 is None) == (not paid)
        ratio = f"{row.cost / best.cost:.2f}" if alike else "no price"
        p = winner.clusters.get(row.cluster)
        what = f"{row.sharder} {row.precision}\n{row.optimizer}" + ("" if row.trainable else "\nsimulated only")
        cost = f"{row.cost:.2f}\n{_span(row.cost_interval)}" if alike else DASH
        cells.append((row.cluster, what, f"{row.ms:.2f}", cost, ratio, DASH if p is None else f"{p:.0%}"))
    columns = ("cluster", "its best", "ms", "$ per 1e9" if paid else "dev-hours", "ratio", "cheapest")
    note = "Ratio: of cost, to the chosen one. Cheapest: in how many draws the cheapest combination is on the cluster."
    return Table("The best of each cluster", columns, tuple(cells), note, columns[2:])


def refused_words(rows: Sequence[Row]) -> str:
    """Combinations without figures in a sentence for each sharder: what does not fit, and what cannot be planned, and why."""
    lines = []
    for sharder in dict.fromkeys(row.sharder for row in rows):
        own = [row for row in rows if row.sharder == sharder]
        lacking = [row for row in own if row.ms is None and not row.fits]
        unable = [row for row in own if row.ms is None and row.fits]
        if lacking:
            amounts = dict.fromkeys(found[1] for row in lacking if (found := LACKS.search(row.why_not or "")))
            size = ", ".join(amounts) if len(amounts) < 3 else f"{min(amounts)} to {max(amounts)}"
            lack, do = ("lacks", "does") if len(lacking) == 1 else ("lack", "do")
            least = f" {lack} {size}" if amounts else f" {do} not fit"
            hot = next((f": {words}" for row in lacking if (words := hot_rank_words(row))), "")
            lines.append(f"  {sharder}: {counted(len(lacking), 'combination')}{least}{hot}.")
        if unable:
            lines.append(f"  {sharder}: {counted(len(unable), 'combination')} cannot be planned: {unable[0].why_not}.")
    return "\n".join(["Without figures (--all says what each lacks, and the nearest that fits):", *lines]) if lines else ""


def _extrapolates(rows: Sequence[Row]) -> list[str]:
    """What the profile was fitted on, said once for all systems that are something else."""
    systems: dict[str, list[str]] = {}
    for sentence in dict.fromkeys(row.extrapolates for row in rows if row.extrapolates):
        fitted, _, this = sentence.partition("; this is ")
        systems.setdefault(fitted, []).append(this)
    return [f"The profile extrapolates: {fitted}; this is {', '.join(each)}." for fitted, each in systems.items()]


def _per_rank(rows: Sequence[Row]) -> str:
    parts = {row.cluster: row.batch_per_rank for row in rows}
    return f" ({', '.join(f'{batch:,} a device on {cluster}' for cluster, batch in parts.items())})"


def _cells(row: Row, paid: bool) -> tuple[str, ...]:
    assert row.ms is not None and row.memory_gb is not None and row.samples_per_second is not None
    exposed = f"exch. {row.exposed_ms:.2f}" if row.exposed_ms is not None else ""
    return (
        f"{'*' if row.pareto else ' '} {row.sharder}\n  {row.optimizer}\n  {row.cluster} {row.precision}" + _stores(row) + _only(row),
        f"{row.ms:.2f}\n{_span(row.ms_interval)}",
        human_count(row.samples_per_second),
        f"{row.cost:.2f}\n{_span(row.cost_interval)}" if not paid or row.usd_per_1e9 is not None else "no price",
        f"{row.memory_gb:.1f}\nof {row.memory_there_gb:g}",
        f"{row.bound}\n{exposed}",
    )


def _stores(row: Row) -> str:
    """Lines of tables larger than memory, short enough for the column."""
    return "".join(f"\n  {number} {place}" for place, number in row.tables_elsewhere.items())


def _only(row: Row) -> str:
    return "" if row.trainable else "\n  simulated only"


def _span(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.3g}{DASH}{interval[1]:.3g}" if interval else "not known"


def changes_table(changes: Sequence[Change], chosen: Row) -> Table:
    """What each change would do to the chosen row."""
    paid = chosen.usd_per_1e9 is not None
    cells = []
    for change in changes:
        if not change.fits or change.ms is None or change.time_change is None or change.cost_change is None:
            cells.append((_named(change), "does not fit", *[""] * 4))
            continue
        usd = f"{change.usd_per_1e9:.2f}" if change.usd_per_1e9 is not None else DASH
        cells.append((_named(change), f"{change.ms:.2f}", _percent(change.time_change), usd, _percent(change.cost_change), change.because))
    columns = ("change", "ms", "a sample", "$ per 1e9" if paid else "$", "cost", "because")
    title = f"What would help {chosen.name}: {chosen.ms:.2f} ms" + (f", {chosen.usd_per_1e9:.2f} $" if paid else "")
    note = "Each is simulated again; twice the batch has twice the samples."
    return Table(title, columns, tuple(cells), note, columns[1:5])


def _named(change: Change) -> str:
    """With how it is made, where a word of the column's width says it."""
    how = "not available here" if change.how is None else change.how
    return f"{change.name}\n  {how if len(how) <= MOST_WORDS else 'by keys: --json'}"


def _percent(change: float) -> str:
    """With its sign, unless no digit of it is seen."""
    return f"{change:+.1%}" if round(change, 3) else "0.0%"


def refused_table(rows: Sequence[Row]) -> Table:
    """Combinations without figures, those with one reason together: why, and the nearest change that has some."""
    reasons: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        if row.ms is None:
            lacks = LACKS.search(row.why_not or "")
            why = f"lacks {lacks[1]}" if lacks and not row.fits else row.why_not or ""
            reasons.setdefault((why, row.fix), []).append(row)
    cells = tuple(("\n".join(row.name for row in alike), why, (fix or DASH).replace(": ", "\n")) for (why, fix), alike in reasons.items())
    note = "Lacks: of memory on the fullest device. The nearest that fits changes the fewest axes, the optimizer first."
    return Table("What does not fit, or cannot be planned", ("combination", "why", "the nearest that fits"), cells, note)
