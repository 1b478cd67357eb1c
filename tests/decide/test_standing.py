"""How sure a choice is: probabilities and regret by hand, what is told apart, and only what trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recsys_lab.decide.answer import Winner, compared, marked, winner_of
from recsys_lab.decide.prices import Priced
from recsys_lab.decide.question import parse_question
from recsys_lab.decide.rows import Row
from recsys_lab.decide.standing import Standings, standings_of, with_standing
from recsys_lab.decide.tables import clusters_table, refused_words, rows_table
from recsys_lab.decide.verdict import training_command
from recsys_lab.errors import UserError
from recsys_lab.simulate.posterior import DRAWS, normal
from tests.decide.test_costs import row

NONE = np.zeros(DRAWS)


def priced(of: Row, changes: np.ndarray | None = NONE, weights: Sequence[float] = (1.0,), more: Sequence[Row] = ()) -> Priced:
    rows = (of, *more)
    profiles = tuple(SimpleNamespace(name=one.profile) for one in rows)
    combination: Any = SimpleNamespace(name=of.name, cluster=of.cluster, profiles=profiles, weights=tuple(weights))
    return Priced(combination, rows, None, {} if changes is None else {one.profile: changes for one in rows})


def decided(*given: Priced, trainable: bool = True) -> tuple[list[Row], Winner]:
    rows = [row for one in given for row in one.rows]
    first = given[0].rows[0].profile
    standings = standings_of(given, [row for row in compared(rows, trainable) if row.profile == first])
    rows = with_standing(marked(rows, trainable), standings)
    return rows, winner_of(rows, standings, trainable)


CHEAP, DEAR = row("h100x64", 6.0, 4.0, 1.6), row("a100x128", 7.0, 4.4, 2.0, "dmt")


def test_costs_that_differ_by_nothing_unknown_are_told_apart_for_sure() -> None:
    rows, winner = decided(priced(CHEAP), priced(DEAR))
    assert [(one.p_best, one.regret) for one in rows] == [(1.0, 0.0), (0.0, pytest.approx(0.1))]
    assert winner.status == "winner" and winner.pairs[0].p == 1.0 and winner.rivals == ()
    assert winner.verdict.endswith("\nIt is cheapest with probability 100%, and at most 0% dearer than the best in 95 % of draws.")


def test_probability_and_regret_are_those_of_two_normals() -> None:
    """Two costs whose logarithms differ by 0.0953 with standard deviation 0.1 each: Phi(0.0953 / 0.1414) = 0.75."""
    rows, winner = decided(priced(CHEAP, 0.1 * normal("one")), priced(DEAR, 0.1 * normal("other")))
    by_hand = 0.5 * (1 + math.erf(math.log(1.1) / math.sqrt(2 * 0.02)))
    assert rows[0].p_best == pytest.approx(by_hand, abs=0.015) and rows[1].p_best == pytest.approx(1 - by_hand, abs=0.015)
    assert winner.status == "not distinguishable" and winner.rivals == ("a100x128 dmt fp32 adam",)
    assert winner.clusters == {"h100x64": rows[0].p_best, "a100x128": rows[1].p_best}
    shares = f"h100x64 with {rows[0].p_best:.0%}, a100x128 with {rows[1].p_best:.0%}"
    assert winner.verdict.startswith(f"h100x64 and a100x128 cannot be told apart: the cheapest is on {shares}.")
    assert "\nMeasure these two on their hosts (docs/launchers.md) for 10 minutes each:\n" in winner.verdict


def test_what_both_share_leaves_their_order_as_it_is() -> None:
    shared = 0.5 * normal("both")
    rows, winner = decided(priced(CHEAP, shared), priced(DEAR, shared))
    assert rows[0].p_best == 1.0 and winner.status == "winner"


def test_a_choice_that_loses_little_needs_no_measurement() -> None:
    near = replace(DEAR, usd_per_1e9=4.001)
    _, winner = decided(priced(CHEAP, 0.01 * normal("one")), priced(near, 0.01 * normal("other")))
    assert winner.status == "not distinguishable" and winner.verdict.startswith("Rent h100x64 for ") and "Measure" not in winner.verdict


def test_on_one_cluster_the_open_question_is_the_plan() -> None:
    other = replace(DEAR, cluster="h100x64")
    _, winner = decided(priced(CHEAP, 0.1 * normal("one")), priced(other, 0.1 * normal("other")))
    assert (
        winner.verdict.startswith("Rent h100x64 for torchrec fp32 adam: ") and "It is cheaper than dmt fp32 adam with 7" in winner.verdict
    )


def test_weighed_profiles_share_the_draws() -> None:
    """The second profile, with a quarter of the draws, makes the dear one cheap."""
    other = [replace(one, profile="hugectr", usd_per_1e9=cost) for one, cost in ((CHEAP, 4.0), (DEAR, 1.0))]
    rows, _ = decided(*(priced(one, weights=(0.75, 0.25), more=[more]) for one, more in zip((CHEAP, DEAR), other)))
    assert [one.p_best for one in rows] == [0.75, 0.75, 0.25, 0.25]
    assert rows[0].regret == pytest.approx(0.25 * 3) and rows[2].regret == pytest.approx(0.75 * 0.1)


def test_where_one_error_is_not_known_nothing_is_said_of_any() -> None:
    rows, winner = decided(priced(CHEAP), priced(DEAR, None))
    assert {one.p_best for one in rows} == {None} and "not known" in winner.verdict and winner.pairs == ()


def test_what_is_simulated_only_wins_nothing_unless_it_is_asked_for() -> None:
    stored = replace(
        CHEAP, sharder="neo_4d", usd_per_1e9=2.0, trainable=False, why_simulated_only="tables in host memory train on CPUs alone"
    )
    rows, winner = decided(priced(stored), priced(CHEAP), priced(DEAR))
    assert winner.row is not None and winner.row.name == CHEAP.name and not rows[0].pareto and rows[0].p_best is None
    assert any("simulated only" in cells[0] for cells in rows_table(rows, winner).rows)
    _, anything = decided(priced(stored), priced(CHEAP), priced(DEAR), trainable=False)
    assert anything.row is not None and anything.row.sharder == "neo_4d"
    _, alone = decided(priced(stored))
    assert alone.verdict.endswith("It is simulated only.")


def test_the_table_of_clusters_has_one_row_each_beside_the_chosen_one() -> None:
    rows, winner = decided(priced(CHEAP), priced(DEAR), priced(replace(CHEAP, sharder="dmt", usd_per_1e9=4.2)))
    table = clusters_table([rows[0], rows[1]], winner)
    assert [(cells[0], cells[4], cells[5]) for cells in table.rows] == [("h100x64", "1.00", "100%"), ("a100x128", "1.10", "0%")]


def test_what_has_no_figures_is_a_sentence_a_sharder() -> None:
    lacking = [replace(CHEAP, sharder=s, fits=False, ms=None, why_not=f"lacks {gb} GB") for s, gb in (("dmt", "9.0"), ("dmt", "28.6"))]
    unable = [replace(CHEAP, sharder="neo_4d", ms=None, why_not="sequences")] * 12
    words = refused_words([CHEAP, *lacking, *unable])
    assert words.count("\n") == 2 and "dmt: 2 combinations lack 9.0 GB, 28.6 GB." in words
    assert "neo_4d: 12 combinations cannot be planned: sequences." in words and refused_words([CHEAP]) == ""


def test_the_line_that_measures_trains_what_was_simulated() -> None:
    command, rest = "python run.py model=dcn mode=simulate cluster=h100x64 sharder=dmt", " data.batch_size=65536 trainer.max_minutes=10"
    assert training_command(replace(CHEAP, command=command)) == command.replace("simulate", "train") + rest
    logged = "python run.py logger.mode=offline model=dcn mode=simulate"
    assert training_command(replace(CHEAP, command=logged)) == f"python run.py logger.mode=offline model=dcn mode=train{rest}"
    here = "python run.py mode=simulate cluster=local data.batch_size=65536"
    assert training_command(replace(CHEAP, command=here)).count("data.batch_size") == 1


WORDS = ["model=dcn", "clusters=h100x64", "batch=65536"]


def test_profiles_are_weighed_by_what_stands_behind_them() -> None:
    question = parse_question([*WORDS, "profiles=torchrec:3,hugectr:1"])
    assert question.profiles == ("torchrec", "hugectr") and question.weights == (0.75, 0.25) and question.trainable
    assert parse_question([*WORDS, "profiles=sok,hugectr", "trainable=false"]).weights == (1.0,)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("profiles=torchrec:0,hugectr:0", "every weight is 0"),
        ("profiles=torchrec:3,hugectr", "a profile without a weight"),
        ("profiles=torchrec:x,hugectr:1", "not a weight"),
        ("profiles=torchrec:nan,hugectr:1", "weight of torchrec"),
        ("profiles=torchrec:-1,hugectr:1", "weight of torchrec"),
        ("trainable=maybe", "trainable: not a yes or no; given maybe; allowed: true, false"),
    ],
)
def test_a_weight_that_is_none_is_refused(words: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_question([*WORDS, words])


def test_the_shares_of_clusters_sum_to_one() -> None:
    standings = Standings(("a", "b", "c"), ("x", "y", "x"), np.array([[1.0, 3.0, 2.0], [2.0, 1.0, 3.0], [3.0, 2.0, 1.0]]))
    assert standings.of_clusters == {"x": pytest.approx(2 / 3), "y": pytest.approx(1 / 3)}
