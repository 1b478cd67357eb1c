"""An ablation table as tables of text, which every format shows, and the sentences without which they could not be read.

A cell is one line.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from recsys_lab.report.sections import Table
from recsys_lab.sweeps.comparisons import NO_EVIDENCE, ROUNDING, SAME, TOO_FEW, Comparison
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.rows import Row
from recsys_lab.sweeps.statistics import MOST_SEEDS, Estimate
from recsys_lab.sweeps.table import Ablation
from recsys_lab.units import counted, human_count

DASH, PLUS_MINUS = "\N{EN DASH}", "\N{PLUS-MINUS SIGN}"
#: Whether the plan fits its cluster.
FITS = {True: "yes", False: "no", None: "not known"}
ARROWS = {True: "\N{UPWARDS ARROW}", False: "\N{DOWNWARDS ARROW}"}


def value_tables(ablation: Ablation, status: bool = True) -> list[Table]:
    """Quality a split, then speed, measured and simulated never in one table. Each with the choices that vary. The best are bold.

    `status`: the first has a column that says what failed or is missing, and why, if anything did.
    """
    groups = list(_by_title(ablation.figures).items()) or [("Quality, validation (measured)", [])]
    status = status and any(row.status != "completed" for row in ablation.rows)
    return [_values(ablation, title, figures, status=status and i == 0) for i, (title, figures) in enumerate(groups)]


def _by_title(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    by_title: dict[str, list[Figure]] = {}
    for figure in figures:
        by_title.setdefault(title_of(figure), []).append(figure)
    return by_title


def title_of(figure: Figure) -> str:
    if figure.split:
        return f"Quality, {figure.split} (measured)"
    return "Speed (simulated)" if figure.simulated else "Speed (measured)"


def _values(ablation: Ablation, title: str, figures: Sequence[Figure], status: bool) -> Table:
    names = tuple(heading(f) for f in figures)
    simulated, counts = any(figure.simulated for figure in figures), ablation.seeds is None or not ablation.columns
    rows = [
        (
            *ablation.choices[i],
            *((_seeds(row),) if counts else ()),
            *((FITS[row.fits],) if simulated else ()),
            *(cell(ablation, i, f) for f in figures),
            *((f"{row.status}: {row.error}" if row.error else row.status,) if status else ()),
        )
        for i, row in enumerate(ablation.rows)
    ]
    between = (*(("seeds",) if counts else ()), *(("fits",) if simulated else ()))
    columns = (*ablation.columns, *between, *names, *(("status",) if status else ()))
    bold = frozenset((i, heading(figure)) for figure in figures for i in best(ablation, figure))
    return Table(title, columns, tuple(rows), right=("seeds", *names), bold=bold)


def _seeds(row: Row) -> str:
    return str(len(row.completed)) if len(row.completed) == len(row.jobs) else f"{len(row.completed)} of {len(row.jobs)}"


def best(ablation: Ablation, figure: Figure) -> list[int]:
    """Rows that no other on the same data beats in the digits that are shown. None where all are alike."""
    if figure.is_part:
        return []
    middles = {i: value for i in range(len(ablation.rows)) if (value := ablation.middle(i, figure)) is not None}
    rows = []
    for group in dict.fromkeys(ablation.data[i] for i in middles):
        of_group = {i: value for i, value in middles.items() if ablation.data[i] == group}
        texts = {i: digits_of(value, figure) for i, value in of_group.items()}
        most = (max if figure.higher_is_better else min)(of_group, key=lambda i: of_group[i])
        if len(set(texts.values())) > 1:
            rows += [i for i, text in texts.items() if text == texts[most]]
    return rows


def failures(ablation: Ablation) -> list[str]:
    """A line for each row that has not all its figures."""
    unfinished = [(i, row) for i, row in enumerate(ablation.rows) if row.status != "completed"]
    return [f"{ablation.name(i)}: {row.status}: {row.error}" for i, row in unfinished]


def heading(figure: Figure) -> str:
    """With an arrow to where it is better."""
    return f"{figure.words} {ARROWS[figure.higher_is_better]}"


def cell(ablation: Ablation, index: int, figure: Figure) -> str:
    """The row's seeds in one line, as `Ablation.cell` has it."""
    row = ablation.rows[index]
    values, middle = row.values(figure), ablation.middle(index, figure)
    if middle is None:
        return row.status if not row.completed else "absent"
    words = digits_of(middle, figure)
    if ablation.cell == "mean_std" and min(values) < max(values):
        return f"{words} {PLUS_MINUS} {_deviation(statistics.stdev(values), figure)}"
    if ablation.cell == "median_range" and min(values) < max(values):
        return f"{words} [{digits_of(min(values), figure)}{DASH}{digits_of(max(values), figure)}]"
    return words


def _deviation(value: float, figure: Figure) -> str:
    """One that the figure's digits would hide has a digit of its own."""
    return digits_of(value, figure) if round(value, figure.digits) or not value else f"{value:.0e}"


def change_tables(ablation: Ablation) -> list[Table]:
    """The change of each row from its baseline, and its verdict where there are seeds enough for any."""
    if not ablation.compared:
        return []
    figures = [figure for figure in ablation.figures if not figure.is_part]
    return [_changes(ablation, title, of_title) for title, of_title in _by_title(figures).items()]


def _changes(ablation: Ablation, title: str, figures: Sequence[Figure]) -> Table:
    names = tuple(heading(f) for f in figures)
    rows = tuple((*ablation.choices[i], *(change_cell(ablation, i, f) for f in figures)) for i in range(len(ablation.rows)))
    return Table(f"Change from the baseline: {_lowered(title)}", (*ablation.columns, *names), rows, right=names)


def capitalised(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def _lowered(title: str) -> str:
    return f"{title[0].lower()}{title[1:]}"


def change_cell(ablation: Ablation, index: int, figure: Figure) -> str:
    """`+0.0012 better`, `x1.160`, `baseline`; `none` where there is nothing to compare."""
    if ablation.bases.of_rows[index] == index:
        return "baseline"
    plain, comparison = ablation.against_base(index, figure), ablation.comparisons.get((index, figure.name))
    if plain is None or comparison is None:
        return "none" if plain is None else change(plain, figure)
    verdicts = {one.verdict for one in ablation.comparisons.values()}
    verdict = comparison.verdict if comparison.verdict != TOO_FEW or verdicts - {TOO_FEW, SAME} else ""
    return f"{change(plain, figure)} {verdict}".rstrip()


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
    """Every test that its seeds can carry, one row each, quality a split and measured speed apart."""
    by_title: dict[str, list[tuple[str, ...]]] = {}
    for (index, _), comparison in ablation.comparisons.items():
        if comparison.p is not None:
            by_title.setdefault(title_of(comparison.figure), []).append(_comparison_row(ablation, index, comparison))
    columns = (*ablation.columns, *COMPARISON_COLUMNS, SEEDS_NEEDED)
    right = tuple(name for name in COMPARISON_COLUMNS[1:-1]) + (SEEDS_NEEDED,)
    return [Table(f"Compared: {_lowered(title)}", columns, tuple(rows), right=right) for title, rows in by_title.items()]


def _comparison_row(ablation: Ablation, index: int, comparison: Comparison) -> tuple[str, ...]:
    return (
        *ablation.choices[index],
        heading(comparison.figure).replace(" ", "\N{NO-BREAK SPACE}"),
        change(comparison.estimate.value, comparison.figure),
        interval(comparison.estimate, comparison.figure) if comparison.estimate.confidence else "none",
        f"{comparison.estimate.confidence:.1%}" if comparison.estimate.confidence else "none",
        str(comparison.pairs) if comparison.pairs else "unpaired",
        "unpaired" if comparison.rank_biserial is None else f"{comparison.rank_biserial + 0.0:+.2f}",
        f"{comparison.cliffs_delta + 0.0:+.2f}",
        "unpaired" if comparison.p_signed_rank is None else f"{comparison.p_signed_rank:.2g}",
        f"{comparison.p_rank_sum:.2g}",
        f"{comparison.p:.2g}",
        comparison.verdict.replace(" ", "\N{NO-BREAK SPACE}"),
        seeds_text(comparison),
    )


def seeds_text(comparison: Comparison) -> str:
    if comparison.verdict == SAME:
        return "none seen"
    if comparison.seeds_needed is None:
        return "none seen" if comparison.estimate.value == (0 if comparison.figure.against == "difference" else 1) else "not known"
    return f"over {MOST_SEEDS:,}" if comparison.seeds_needed > MOST_SEEDS else str(comparison.seeds_needed)


def header(ablation: Ablation) -> str:
    """What a cell is, in words."""
    seeds = ablation.seeds
    over = "one seed each" if seeds == 1 else f"over {seeds} seeds" if seeds else "over seeds"
    if seeds == 1:
        return over
    words = {"median": f"median {over}", "median_range": f"median {over}, in brackets the range"}
    return words.get(ablation.cell, f"mean {PLUS_MINUS} standard deviation {over}")


MARKS = "the arrow points to where a figure is better; the best is bold"


def explained(ablation: Ablation) -> list[str]:
    """What the marks in the tables mean: only of those that are there."""
    comparisons = list(ablation.comparisons.values())
    cut = [f"{short} is {key}" for short, key in zip(ablation.columns, ablation.varying) if short != key]
    notes = [*ablation.notes, *([f"keys: {', '.join(cut)}"] if cut else [])]
    if ablation.compared:
        notes.append("A change of quality is a difference; x1.2 is 1.2 times the baseline's.")
    if not comparisons:
        return notes
    verdicts = {comparison.verdict for comparison in comparisons}
    sizes = sorted({(c.pairs, c.estimate.confidence) for c in comparisons if c.pairs and c.p is not None and c.estimate.confidence})
    if sizes:
        confidences = ", ".join(f"{confidence:.0%} from {counted(pairs, 'pair')}" for pairs, confidence in sizes)
        estimate = "Tests have Hodges and Lehmann's estimate of the change."
        notes.append(f"{estimate} Intervals are each row's own and not corrected for other rows. Confidence: {confidences}.")
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
