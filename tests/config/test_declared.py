"""Every option is held to what its annotation declares. All cases are made from the declarations."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated

import pytest
from omegaconf import DictConfig

from recsys_lab.base.ranges import Count, OneOf, Positive, Range, Text, check
from recsys_lab.config.kinds import BASES
from recsys_lab.config.schema import check_group, leaves, target_of
from recsys_lab.errors import UserError
from tests.config.declared import Option, configs, options, options_of

SMALL = Annotated[str, Text("[a-z]+", 3, "small letters")]


@pytest.fixture(scope="module")
def composed() -> dict[tuple[str, ...], DictConfig]:
    return configs()


@pytest.fixture(scope="module")
def every(composed: dict[tuple[str, ...], DictConfig]) -> list[Option]:
    return options(composed)


def refusal(option: Option, value: object) -> str | None:
    """The line with which `value` is refused; None where it is taken."""
    try:
        check_group(option.in_group(value), option.schema, option.where, whole=False)
    except UserError as error:
        return str(error)
    return None


def test_every_number_of_every_config_declares_its_range(composed: dict[tuple[str, ...], DictConfig]) -> None:
    for line, config in composed.items():
        declared = {option.name for option in options_of(config) if option.numeric and option.rule is not None}
        numbers = {re.sub(r"\[\d+\]", "", key) for key, value in leaves(config) if type(value) in (int, float)}
        assert numbers <= declared, f"{line}: no range is declared for {sorted(numbers - declared)}"


def test_every_option_that_takes_a_number_declares_its_range(every: list[Option]) -> None:
    assert [option.name for option in every if option.numeric and option.rule is None] == []
    groups = {
        "",
        "optimizer",
        "trainer",
        "launcher",
        "cluster",
        "simulate",
        "simulate.profile",
        "data",
        "ablation",
        "model",
        "study",
        "logger",
    }
    assert groups <= {option.where for option in every}
    assert sum(option.numeric for option in every) > 250


def test_no_option_takes_what_it_does_not_declare(every: list[Option]) -> None:
    cases = [(option, value) for option in every if option.rule is not None or option.numeric for value in option.bad_values()]
    assert len(cases) > 4000
    for option, value in cases:
        said = refusal(option, value)
        assert said is not None, f"{option.word(value)} is taken"
        assert said.startswith(option.name) and "\n" not in said, said


def test_the_ends_of_every_range_are_taken(every: list[Option]) -> None:
    for option in every:
        if isinstance(option.rule, Range):
            for end in (option.rule.least, option.rule.most):
                if math.isfinite(end):
                    assert refusal(option, int(end) if option.base is int else end) is None, option.word(end)
        elif isinstance(option.rule, OneOf):
            for choice in option.rule.choices:
                assert refusal(option, choice) is None, option.word(choice)


def test_every_kind_of_target_is_there() -> None:
    for name in BASES.values():
        module, _, last = name.rpartition(".")
        assert target_of(name, "nowhere").__qualname__ == last and target_of(name, "nowhere").__module__ == module


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (Count, 0, "k: out of range; given 0; allowed: 1 or more, at most 1,000,000,000, whole"),
        (Count, 1.0, "k: out of range; given 1.0; allowed: 1 or more, at most 1,000,000,000, whole"),
        (Count, True, "k: out of range; given True; allowed: 1 or more, at most 1,000,000,000, whole"),
        (Positive | None, math.nan, "k: out of range; given nan; allowed: 1e-09 or more, at most 1,000,000,000, or null"),
        (Positive, None, "k: out of range; given null; allowed: 1e-09 or more, at most 1,000,000,000"),
        (list[Count], [1, 0], "k[1]: out of range; given 0"),
        (dict[str, Positive], {"a": -1.0}, "k.a: out of range; given -1.0"),
        (
            dict[Annotated[str, OneOf(("fp32", "bf16"))], Positive],
            {"bf61": 1.0},
            "k: no such choice; given bf61; allowed: fp32, bf16;",
        ),
        (Annotated[float, Range(above=0, below=1)], 1, "k: out of range; given 1; allowed: more than 0, less than 1"),
        (Annotated[int, OneOf((2, 3))], 4, "k: no such choice; given 4; allowed: 2, 3"),
        (
            SMALL,
            "abcd",
            "k: not allowed; given 'abcd'; allowed: small letters, at most 3 characters",
        ),
        (SMALL, "a\n", "k: not allowed; given 'a\\n'; allowed: small letters"),
    ],
)
def test_a_refusal_says_what_is_allowed(hint: object, value: object, said: str) -> None:
    with pytest.raises(UserError) as caught:
        check(value, hint, "k")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("hint", "value"), [(Positive | None, None), (list[Count], []), (Count, 1), (Positive, 1), (str, 5), (list[str] | None, ["a"])]
)
def test_what_is_declared_is_taken(hint: object, value: object) -> None:
    check(value, hint, "k")


def test_a_package_that_is_not_installed_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_a_package.py").write_text("import no_such_package\n\n\ndef start():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as told:
        target_of("needs_a_package.start", "logger")
    assert told.value.parts["remedy"] == "install no_such_package, or choose another logger"
    with pytest.raises(UserError) as told:
        target_of("no_such_package.start", "logger")
    assert told.value.parts["remedy"] == "name the function that builds it, as the other choices do"


def test_a_module_that_only_lies_in_this_folder_has_its_remedy(tmp_path, monkeypatch):
    (tmp_path / "my_own_model.py").write_text("class Mine: ...")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="my_own_model lies in this folder, .*put PYTHONPATH=. before the command"):
        target_of("my_own_model.Mine", "model")
    with pytest.raises(UserError, match="name the function that builds it"):
        target_of("no_such_model.Mine", "model")
