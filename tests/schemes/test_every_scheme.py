"""Every scheme that there is, by its reference cases: plans are valid, training equals the unsharded model, collectives equal the steps."""

from __future__ import annotations

import pytest

from recsys_lab.executor.execution import execution_of
from recsys_lab.executor.recorded import register
from recsys_lab.plan.explain import explain
from recsys_lab.plan.validate import validate
from tests.plan.plans import COMMS, FP8, FP32, SCHEMES, UNLIKE
from tests.schemes.generated import Case, all_cases, check_equality, check_plans, check_volume, planned_sequences

SHAPES = [(1, 2), (2, 2), (1, 4), (4, 1)]
register()  # before a rank joins its process group


@pytest.mark.parametrize("shape", [(1, 1), *SHAPES, (3, 2)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_reference_plans_are_valid_and_explained(shape: tuple[int, int]) -> None:
    checked = all_cases(*shape)
    check_plans(checked)
    assert {case.scheme for case in checked} == set(SCHEMES), "a scheme without a reference case"
    for case in checked:
        assert any(SCHEMES[case.scheme].travels in sentence for sentence in explain(case.plan))


@pytest.mark.parametrize("name", SCHEMES)
def test_its_execution_is_there(name: str) -> None:
    assert callable(execution_of(SCHEMES[name]).run)


def test_sequences_have_every_sharder_but_towers() -> None:
    plans = [case.plan for case in planned_sequences(2, 2)]
    for plan in plans:
        validate(plan)
    sharders = {"torchrec", "torchrec_row_wise", "torchrec_2d", "neo_4d", "flexshard_2tier", "flexshard_3tier"}
    assert {plan.sharder for plan in plans} == sharders | {"by_hand"}


def test_training_equals_the_unsharded_model() -> None:
    check_equality(all_cases(2, 2) + planned_sequences(2, 2))


def test_with_equal_ids_once_training_equals_the_unsharded_model() -> None:
    check_equality(sequences(2, 2), dedup=True)


@pytest.mark.parametrize("precision", [FP32, FP8], ids=lambda p: p.name)
def test_with_equal_ids_once_recorded_collectives_equal_the_steps(precision) -> None:
    """Bags too: their bytes stay as they are."""
    others = [case for case in all_cases(2, 2) if case.pooling != "none"]
    check_volume(sequences(2, 2) + (others if precision == FP32 else []), precision, dedup=True)


def sequences(hosts: int, ranks_per_host: int) -> list[Case]:
    return [case for case in all_cases(hosts, ranks_per_host) if case.pooling == "none"] + planned_sequences(hosts, ranks_per_host)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_recorded_collectives_equal_the_steps(shape: tuple[int, int]) -> None:
    check_volume(all_cases(*shape) + (planned_sequences(*shape) if shape == (2, 2) else []))


@pytest.mark.parametrize("precision", [COMMS, UNLIKE, FP8], ids=lambda p: p.name)
def test_recorded_collectives_equal_the_steps_in_other_formats(precision) -> None:
    """FP8's scales count: one a row of a sequence, one a sample's pooled row of each sender."""
    check_volume(all_cases(2, 2) + (planned_sequences(2, 2) if precision == FP8 else []), precision)
