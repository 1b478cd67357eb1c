"""From words to a decision: what `python -m recsys_lab decide` prints, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.cluster import doubt
from recsys_lab.config.overrides import overrides_from_kwargs
from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.answer import Winner, cheapest_first, choosable, compared, marked, winner_of
from recsys_lab.decide.assumptions import assumptions_of, evidence_of
from recsys_lab.decide.bill_words import assumptions
from recsys_lab.decide.bills import WholeRun, whole_run, with_bills
from recsys_lab.decide.combinations import Combination, combinations
from recsys_lab.decide.fixes import least_change, with_fixes
from recsys_lab.decide.hot_rows import hot_sentences
from recsys_lab.decide.prices import Priced
from recsys_lab.decide.question import AXES, Question, parse_question
from recsys_lab.decide.rows import Change, Row
from recsys_lab.decide.sensitivity import CHANGES, changes_of, sentences
from recsys_lab.decide.side_by_side import price_all
from recsys_lab.decide.sizes import smallest_sentences
from recsys_lab.decide.standing import standings_of, with_standing
from recsys_lab.decide.target import Target, target_of
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.planning import is_far_too_small, plan_inputs
from recsys_lab.report.sections import unlike_pipelines
from recsys_lab.simulate.bounds import HOST_LAUNCHES
from recsys_lab.units import human_bytes

#: Told how many combinations are done, and of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Decision:
    """`rows`: one for each combination and profile; `pandas.DataFrame(decision.rows)` is their table. `winner`: what they allow to say.

    `sensitivity`: changes of the winner's row, the most helpful first. `sentences`: the same of FP16 communication, of towers, and of what
    would help most, what dies of hot rows, and unlike pipelines. `assumptions`, `evidence`: what the answer takes for granted, and rests
    on, by name. `run`: the whole run that the rows' bills are of; None where none was asked for. `of_bills`: what these take for granted,
    in words. `trainable`: whether only what trains here was to be chosen. `target`: what meets the targets that were asked for.
    `not_priced`: combinations that Ctrl-C left out; all else is then of the others alone.
    """

    rows: list[Row]
    winner: Winner
    sensitivity: list[Change]
    sentences: list[str]
    assumptions: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    run: WholeRun | None = None
    of_bills: list[str] = field(default_factory=list)
    target: Target | None = None
    trainable: bool = True
    not_priced: int = 0

    @property
    def priced(self) -> int:
        """Combinations. Each has a row for each profile, or one without figures."""
        return len({row.choices for row in self.rows})

    @property
    def of_clusters(self) -> list[Row]:
        """The best row of each cluster under the winner's profile, the cheapest first."""
        best = self.winner.row
        rows = [row for row in self.rows if row.ms is not None and row.fits and best is not None and row.profile == best.profile]
        by_cluster = {cluster: [row for row in rows if row.cluster == cluster] for cluster in dict.fromkeys(row.cluster for row in rows)}
        first = [min(own, key=lambda row: (row.regret is None, row.regret or 0.0, *cheapest_first(row))) for own in by_cluster.values()]
        return sorted(first, key=cheapest_first)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        chosen = self.winner
        return {
            "rows": [asdict(row) for row in self.rows],
            "winner": {
                "status": chosen.status,
                "row": chosen.row and asdict(chosen.row),
                "by_profile": {profile: asdict(row) for profile, row in chosen.by_profile.items()},
                "not_distinguishable_from": list(chosen.rivals),
                "words": chosen.words,
                "p_best": chosen.row and chosen.row.p_best,
                "regret": chosen.row and {"mean": chosen.row.regret, "in_95_percent": chosen.row.regret_95},
                "trainable": chosen.row and chosen.row.trainable,
                "without_price": list(chosen.without_price),
            },
            "pairs": [asdict(pair) for pair in chosen.pairs],
            "clusters": [
                {"cluster": row.cluster, "row": asdict(row), "p_best": chosen.clusters.get(row.cluster)} for row in self.of_clusters
            ],
            "assumptions": self.assumptions,
            "evidence": self.evidence,
            "sensitivity": [asdict(change) for change in self.sensitivity],
            "sentences": self.sentences,
            "run": self.run and {"samples": self.run.samples, "evaluated": self.run.evaluated, "assumptions": self.of_bills},
            "target": self.target and asdict(self.target),
            "not_priced": self.not_priced,
        }


def decide(*words: str, workers: int | None = None, progress: Progress | None = None, **keys: Any) -> Decision:
    """Plans and simulates every combination, as `python -m recsys_lab decide` with the same words does.

    Args:
        words: those of the command line, such as "cluster.reserved_memory_share=0.1".
        workers: processes that price side by side; None: one for each core.
        progress: called with how many combinations are done, and of how many.
        keys: further words, as keywords. A list stands for its items: sharders=["torchrec", "dmt"].

    Returns:
        The rows, what may be said of them, and what would help the best of them most.

    Raises:
        UserError: for whatever is wrong with the words; PlanDoesNotFit where no combination fits.

    >>> words = ["model=dcn_mlperf", "data=random", "clusters=h100x64:2.50,a100x128:1.50", "batch=65536"]
    >>> decision = decide(*words, sharders=["torchrec_row_wise", "neo_4d"], precisions="fp32", optimizers="sgd", profiles="torchrec")
    >>> sorted((row.sharder, row.cluster) for row in decision.rows)[:2]
    [('neo_4d', 'a100x128'), ('neo_4d', 'h100x64')]
    """
    listed = (*AXES, "spot")
    axes = {key: ",".join(map(str, value)) if key in listed and isinstance(value, list | tuple) else value for key, value in keys.items()}
    return decided(parse_question(overrides_from_kwargs(words, axes, "decide")), workers, progress)


def decided(question: Question, workers: int | None = None, progress: Progress | None = None, keep: bool = False) -> Decision:
    """The same of a question that was read. `keep`: Ctrl-C ends the pricing, and the decision is of what was priced, if anything was."""
    cases = combinations(question)
    data = open_data(cases)
    priced = price_all(cases, data, _counted(progress, cases), workers, keep)
    unbilled = [row for one in priced for row in one.rows]
    clusters = {case.cluster: case.experiment.cluster for case in cases}
    run = whole_run(question.run, unbilled, data, cases[0].experiment.trainer.evaluate_every_epochs)
    rows = with_bills(unbilled, run, clusters)
    standings = standings_of(priced, [row for row in compared(rows, question.trainable) if row.profile == cases[0].profiles[0].name])
    rows = with_standing(with_fixes(marked(rows, question.trainable)), standings)
    winner = winner_of(rows, standings, question.trainable)
    if winner.row is None and len(priced) < len(cases):
        raise KeyboardInterrupt
    if winner.row is None:
        raise nothing_fits(priced)
    changes = changes_of(winner.row, priced, data)
    words = [*smallest_sentences(question.ranges, rows), *_of_small(winner.row, priced, changes), *sentences(winner.row, changes)]
    words += [*hot_sentences(winner.row, rows), *_of_pipelines(priced), *_of_doubts(cases)]
    of_profile = choosable([row for row in rows if row.profile == winner.row.profile], question.trainable)
    chosen = next(one.combination for one in priced if one.combination.name == winner.row.name)
    return Decision(
        rows,
        winner,
        changes,
        words,
        assumptions_of(chosen, data),
        evidence_of(chosen, winner.row),
        run,
        assumptions(run, of_profile, clusters) if run else [],
        target_of(question.run, of_profile),
        question.trainable,
        len(cases) - len(priced),
    )


def _of_small(row: Row, priced: Sequence[Priced], changes: Sequence[Change]) -> list[str]:
    """That the chosen row's model is far too small for its cluster. Else nothing."""
    one = next(one for one in priced if one.combination.name == row.name)
    assert one.plan is not None
    share = next((-2 * (change.time_change or 0.0) for change in changes if change.name == CHANGES[HOST_LAUNCHES]), 0.0)
    if not is_far_too_small(share, one.plan, one.combination.experiment.cluster):
        return []
    tables = human_bytes(sum(table.weight_bytes for table in one.plan.tables))
    return [f"{share:.0%} {HOST_LAUNCHES}: {tables} of tables on {row.ranks} devices."]


def _of_doubts(cases: Sequence[Combination]) -> list[str]:
    """The links whose figures may be in another unit."""
    doubts = {case.cluster: doubt(case.experiment.cluster) for case in cases}
    return [f"{name}: {words}." for name, words in doubts.items() if words]


def _of_pipelines(priced: Sequence[Priced]) -> list[str]:
    """That some of the sharders that fit send the next batch's ids ahead and others do not."""
    compared = [one.combination for one in priced if any(row.fits and row.ms is not None for row in one.rows)]
    return [
        f"{said[0].upper()}{said[1:]}."
        for said in unlike_pipelines([(c.sharder, c.experiment.sharder.executor.pipeline) for c in compared])
    ]


def nothing_fits(priced: Sequence[Priced]) -> UserError:
    """The error for a table without any figures.

    It names the cheapest change over all rows. Where no row lacks memory, it says why the first is unsupported.
    """
    rows = [row for one in priced for row in one.rows]
    lacking = [(row, one.combination.experiment.cluster) for one in priced for row in one.rows if not row.fits]
    if not lacking:
        return UserError(f"no combination can be planned: {rows[0].name}: {rows[0].why_not}", where="decide")
    return PlanDoesNotFit(f"none of {len(rows)} combinations fits; {least_change(lacking)}", where="decide")


def open_data(cases: Sequence[Combination]) -> DataSet:
    """The data of all of them. Raises UserError once for a mistake in model or data, which would be in every row."""
    quiet_torchrec()
    first = cases[0].experiment
    data = first.open_data()
    plan_inputs(first, data, first.cluster, first.batch_size)
    return data


def _counted(progress: Progress | None, cases: Sequence[Combination]) -> Callable[[int], None]:
    return lambda done: progress(done, len(cases)) if progress else None
