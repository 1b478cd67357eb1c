"""An ablation table as tables of text, which every format shows, and the sentences without which they could not be read."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from recsys_lab.report.sections import Table
from recsys_lab.sweeps.comparisons import NO_EVIDENCE, ROUNDING, SAME, TOO_FEW, Comparison
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.statistics import MOST_SEEDS, Estimate
from recsys_lab.sweeps.table import Ablation
from recsys_lab.units import counted, human_count

DASH = "\N{EN DASH}"
#: Whether the plan fits its cluster.
FITS = {True: "yes", False: "no", None: "not known"}
ARROWS = {True: "\N{UPWARDS ARROW}", False: "\N{DOWNWARDS ARROW}"}


def value_tables(ablation: Ablation, status: bool = True) -> list[Table]:
    """Quality a split, then speed, measured and simulated never in one table. Each with the choices that vary. A cell has lines.

    `status`: the first has a column that says what failed or is missing, and why, if anything did.
    """
    by_title: dict[str, list[Figure]] = {}
    for figure in ablation.figures:
        by_title.setdefault(title_of(figure), []).append(figure)
    groups = list(by_title.items()) or [("Quality, validation (measured)", [])]
    status = status and any(row.status != "completed" for row in ablation.rows)
    return [_values(ablation, title, figures, status=status and i == 0) for i, (title, figures) in enumerate(groups)]


def title_of(figure: Figure) -> str:
    if figure.split:
        return f"Quality, {figure.split} (measured)"
    return "Speed (simulated)" if figure.simulated else "Speed (measured)"


def _values(ablation: Ablation, title: str, figures: Sequence[Figure], status: bool) -> Table:
    names = tuple(heading(f) for f in figures)
    simulated = any(figure.simulated for figure in figures)
    rows = [
        (
            *(ablation.label(row, key) for key in ablation.varying),
            str(len(row.completed)) if len(row.completed) == len(row.jobs) else f"{len(row.completed)} of {len(row.jobs)}",
            *((FITS[row.fits],) if simulated else ()),
            *("\n".join(cell(ablation, i, f)) for f in figures),
            *((f"{row.status}: {row.error}" if row.error else row.status,) if status else ()),
        )
        for i, row in enumerate(ablation.rows)
    ]
    columns = (*ablation.varying, "seeds", *(("fits",) if simulated else ()), *names, *(("status",) if status else ()))
    return Table(title, columns, tuple(rows), right=("seeds", *names))


def failures(ablation: Ablation) -> list[str]:
    """A line for each row that has not all its figures."""
    unfinished = [(i, row) for i, row in enumerate(ablation.rows) if row.status != "completed"]
    return [f"{ablation.name(i)}: {row.status}: {row.error}" for i, row in unfinished]


def heading(figure: Figure) -> str:
    """With an arrow to where it is better."""
    return f"{figure.words} {ARROWS[figure.higher_is_better]}"


def cell(ablation: Ablation, index: int, figure: Figure) -> list[str]:
    """Median, range, difference from the baseline with the verdict, and its interval, each a line where there is one."""
    row = ablation.rows[index]
    values = row.values(figure)
    if not values:
        return [row.status if not row.completed else "absent"]
    lines = [digits_of(statistics.median(values), figure)]
    if min(values) < max(values):
        lines.append(f"[{digits_of(min(values), figure)}{DASH}{digits_of(max(values), figure)}]")
    comparison = ablation.comparisons.get((index, figure.name))
    if ablation.compared and ablation.bases.of_rows[index] == index:
        lines.append("(baseline)")
    elif comparison is not None:
        lines.append(f"{change(comparison.estimate.value, figure)} {comparison.verdict}")
        if comparison.estimate.confidence and comparison.verdict != SAME:
            lines.append(interval(comparison.estimate, figure))
    elif (ratio := ablation.against_base(index, figure)) is not None:
        lines.append(change(ratio, figure))
    return lines


def digits_of(value: float, figure: Figure) -> str:
    return human_count(value) if figure.digits == 0 and abs(value) >= 1e6 else f"{value:,.{figure.digits}f}"


def change(value: float, figure: Figure) -> str:
    """A difference with its sign, or a ratio with an x. A difference that the figure's digits would hide has a digit of its own."""
    if figure.against == "ratio":
        return f"x{value:.3f}"
    return f"{value:+.{figure.digits}f}" if round(value, figure.digits) or not value else f"{value:+.0e}"


def interval(estimate: Estimate, figure: Figure) -> str:
    return f"[{change(estimate.low, figure)}, {change(estimate.high, figure)}]"


COMPARISON_COLUMNS = (
    *("figure", "change", "interval", "holds", "pairs", "effect r", "delta"),
    *("signed-rank p", "U test p", "corrected p", "verdict"),
)
SEEDS_NEEDED = "seeds for 80 % power"


def comparison_tables(ablation: Ablation) -> list[Table]:
    """Every test, one row each, quality a split and measured speed apart."""
    by_title: dict[str, list[tuple[str, ...]]] = {}
    for (index, _), comparison in ablation.comparisons.items():
        by_title.setdefault(title_of(comparison.figure), []).append(_comparison_row(ablation, index, comparison))
    columns = (*ablation.varying, *COMPARISON_COLUMNS, SEEDS_NEEDED)
    right = tuple(name for name in COMPARISON_COLUMNS[1:-1]) + (SEEDS_NEEDED,)
    return [Table(f"Compared: {title[0].lower()}{title[1:]}", columns, tuple(rows), right=right) for title, rows in by_title.items()]


def _comparison_row(ablation: Ablation, index: int, comparison: Comparison) -> tuple[str, ...]:
    return (
        *(ablation.label(ablation.rows[index], key) for key in ablation.varying),
        heading(comparison.figure).replace(" ", "\N{NO-BREAK SPACE}"),
        change(comparison.estimate.value, comparison.figure),
        interval(comparison.estimate, comparison.figure) if comparison.estimate.confidence else "none",
        f"{comparison.estimate.confidence:.1%}" if comparison.estimate.confidence else "none",
        str(comparison.pairs) if comparison.pairs else "unpaired",
        "unpaired" if comparison.rank_biserial is None else f"{comparison.rank_biserial + 0.0:+.2f}",
        f"{comparison.cliffs_delta + 0.0:+.2f}",
        "unpaired" if comparison.p_signed_rank is None else f"{comparison.p_signed_rank:.2g}",
        f"{comparison.p_rank_sum:.2g}",
        "not tested" if comparison.p is None else f"{comparison.p:.2g}",
        comparison.verdict.replace(" ", "\N{NO-BREAK SPACE}"),
        seeds_text(comparison),
    )


def seeds_text(comparison: Comparison) -> str:
    if comparison.verdict == SAME:
        return "none seen"
    if comparison.seeds_needed is None:
        return "none seen" if comparison.estimate.value == (0 if comparison.figure.against == "difference" else 1) else "not known"
    return f"over {MOST_SEEDS:,}" if comparison.seeds_needed > MOST_SEEDS else str(comparison.seeds_needed)


def _of_simulated(ablation: Ablation) -> list[str]:
    """What stands below figures that have no comparison."""
    figures = {figure.name for figure in ablation.figures if figure.simulated}
    if not figures or not ablation.compared:
        return []
    ends = (
        "interval low and high: the ends of the iteration's 90 % interval. "
        "Below them an end is compared with the baseline's end; that is no interval of a ratio."
    )
    return ["Below a simulated figure: how many times the baseline's it is.", *([ends] if "simulated_interval_low_ms" in figures else [])]


HEADER = "median over seeds; in brackets the range, min to max, where they differ; the arrow points to where a figure is better"


def explained(ablation: Ablation) -> list[str]:
    """What the marks in the tables mean: only of those that are there."""
    comparisons = list(ablation.comparisons.values())
    notes = [*ablation.notes, *_of_simulated(ablation)]
    if not comparisons:
        return notes
    verdicts = {comparison.verdict for comparison in comparisons}
    interval_sizes = sorted({(c.pairs, c.estimate.confidence) for c in comparisons if c.pairs})
    confidences = ", ".join(
        f"{confidence:.0%} confidence from {counted(pairs, 'pair')}" for pairs, confidence in interval_sizes if confidence
    )
    own = f"Below it the change's interval, each row's own and not corrected for other rows: {confidences}."
    intervals = own if confidences else "One pair gives no interval."
    notes.append(
        "Below the range: the change from the baseline, as Hodges and Lehmann estimate it. "
        f"Of quality it is a difference, of speed how many times the baseline's. {intervals}"
    )
    if verdicts - {TOO_FEW, SAME}:
        kinds = [PAIRED] * any(c.pairs and c.p is not None for c in comparisons) + [UNPAIRED] * any(
            not c.pairs and c.p is not None for c in comparisons
        )
        subject = f"the table's {len(comparisons)} comparisons" if len(comparisons) > 1 else "one comparison"
        notes.append(
            f"Verdicts: exact tests ({'; '.join(kinds)}) over {subject} at once: "
            f"the chance of any false better or worse in the whole table is at most {ablation.level:.0%}."
        )
    if NO_EVIDENCE in verdicts:
        notes.append("no evidence: no evidence of a difference; that is not evidence of none.")
    if TOO_FEW in verdicts:
        notes.append(_too_few([c for c in comparisons if c.verdict == TOO_FEW], ablation.level))
    if SAME in verdicts:
        notes.append(f"same: identical in every seed, or apart by no more than {ROUNDING:.0e}, which the order of a sum can be.")
    return notes


PAIRED = "signs of the seeds' differences flipped together, Westfall and Young's correction"
UNPAIRED = "Mann-Whitney's U, Holm's correction"


def _too_few(comparisons: Sequence[Comparison], level: float) -> str:
    pairs = [str(n) for n in sorted({c.pairs for c in comparisons if c.pairs})]
    seeds = f"{' or '.join(pairs)} paired {'seed' if pairs == ['1'] else 'seeds'}" if pairs else "so few unpaired seeds"
    least = max(c.least_seeds for c in comparisons)
    return f"too few: {seeds} cannot show any difference at {level:.0%}, however large it is; at least {least} are needed."
