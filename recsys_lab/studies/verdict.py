"""The verdict on a study. It says which figures agree, in one sentence that is made of the figures that came out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from recsys_lab.studies.study import Line, Study
from recsys_lab.units import counted

REPRODUCED, DEVIATES = "reproduced", "deviates"
#: Nothing deviates, but no published figure was judged.
STATEMENTS_ONLY = "statements_only"
#: What a study compares (`StudyCommon.compares`): the item's own subject. The others are states: nothing deviates in what stands for it.
SUBJECT = "subject"


@dataclass(frozen=True)
class Tolerance:
    """What counts as agreement, said before the study runs. `relative`: of amounts. `points`: of percentages."""

    relative: float
    points: float


@dataclass(frozen=True)
class Errors:
    """Of the figures with one kind of error. `worst_of`: the figure that is farthest off; `beyond`: how many are off by more."""

    count: int
    worst: float
    mean: float
    worst_of: str
    beyond: int


@dataclass(frozen=True)
class Verdict:
    """`state`: reproduced | statements_only | complexity_only | generated_data | deviates.

    `orders`: of the pairs of published figures that differ, how many are in that order here, and of how many. A figure that a fit
    used is not judged: agreement would say little. Nor is one that another line has (`repeated`).
    """

    state: str
    sentence: str
    relative: Errors | None
    points: Errors | None
    orders: tuple[int, int]
    statements: tuple[int, int]
    by_construction: int


def judge(study: Study, tolerance: Tolerance, compares: str = SUBJECT) -> Verdict:
    """Reproduced: every judged figure lies within `tolerance`, and every statement of the paper holds.

    Without a figure to judge the same is `statements_only`. Where `compares` is not the subject, it is the state.
    """
    judged = [line for line in study.lines if line.error is not None and not line.by_construction and not line.repeated]
    relative = _errors([line for line in judged if line.unit != "%"], tolerance.relative)
    points = _errors([line for line in judged if line.unit == "%"], tolerance.points)
    failed = [text for text, holds in study.statements if not holds]
    assert judged or study.statements, f"{study.name}: nothing to judge by"
    beyond = sum(errors.beyond for errors in (relative, points) if errors)
    agrees = compares if compares != SUBJECT else REPRODUCED if judged else STATEMENTS_ONLY
    state = DEVIATES if beyond or failed else agrees
    orders = in_order(judged)
    constructed = sum(line.by_construction and line.error is not None for line in study.lines)
    parts = [_off(relative, tolerance.relative, percent), _off(points, tolerance.points, "{:.2g} points".format)]
    if orders[1]:
        parts.append(f"{orders[0]} of {orders[1]} pairs in the published order")
    if study.statements:
        parts.append(f"{len(study.statements) - len(failed)} of {len(study.statements)} statements hold")
    parts += [f"not: “{text}”" for text in failed]
    if constructed:
        parts.append(f"{constructed} more by construction")
    sentence = f"{state.replace('_', ' ').capitalize()}: {'; '.join(part for part in parts if part)}."
    statements = (len(study.statements) - len(failed), len(study.statements))
    return Verdict(state, sentence, relative, points, orders, statements, constructed)


def in_order(lines: Sequence[Line]) -> tuple[int, int]:
    """(right, of): pairs of one unit whose published figures differ, and in how many ours differ the same way."""
    right = of = 0
    by_unit: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_unit[line.unit].append(line)
    for alike in by_unit.values():
        for one, other in combinations(alike, 2):
            if one.published is not None and other.published is not None and one.published != other.published:
                of += 1
                right += (one.published < other.published) == (one.ours < other.ours) and one.ours != other.ours
    return right, of


def percent(share: float) -> str:
    """Two digits that say something: 0.05 %, 1.2 %, 14 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"


def _errors(lines: Sequence[Line], tolerance: float) -> Errors | None:
    if not lines:
        return None
    errors = [(abs(line.error or 0.0), line.what) for line in lines]
    worst, what = max(errors)
    sizes = [size for size, _ in errors]
    return Errors(len(sizes), worst, sum(sizes) / len(sizes), what, sum(size > tolerance for size in sizes))


def _off(errors: Errors | None, tolerance: float, words: Callable[[float], str]) -> str:
    """Such as `12 figures within 1.2 % (mean 0.3 %)`, or how many are not and which is the worst."""
    if errors is None:
        return ""
    figures = f"{counted(errors.count, 'figure')}"
    if not errors.beyond:
        return f"{figures} within {words(errors.worst)} (mean {words(errors.mean)})"
    return (
        f"{errors.beyond} of {figures} off by more than {words(tolerance)}, at most {words(errors.worst)} ({errors.worst_of}), "
        f"mean {words(errors.mean)}"
    )
