"""What a search varies, read from its words."""

from __future__ import annotations

import pytest

from recsys_lab.config.search_space import Axis, Space, read_space
from recsys_lab.errors import UserError


@pytest.mark.parametrize(
    ("word", "axis"),
    [
        ("model=dlrm,dcn", Axis("model", ("model=dlrm", "model=dcn"))),
        ("model=choice(dlrm,dcn)", Axis("model", ("model=dlrm", "model=dcn"))),
        ("a.b=range(1,4)", Axis("a.b", (), 1, 3, 1, whole=True)),
        ("a.b=range(1,8,3)", Axis("a.b", (), 1, 7, 3, whole=True)),
        ("a.b=range(1,7,3)", Axis("a.b", (), 1, 4, 3, whole=True)),  # a range ends before its stop
        ("a.b=range(0.5,2,0.5)", Axis("a.b", (), 0.5, 1.5, 0.5, whole=False)),
        ("a.b=range(1,2.5)", Axis("a.b", (), 1, 2, 1, whole=False)),
        ("a.b=interval(1,8)", Axis("a.b", (), 1.0, 8.0, None)),
        ("a.b=int(interval(1,8))", Axis("a.b", (), 1, 8, None, whole=True)),
        ("a.b=interval(0.5,8)", Axis("a.b", (), 0.5, 8, None)),
        ("a.b=interval(1,8.5)", Axis("a.b", (), 1, 8.5, None)),
        ("a.b=tag(log,interval(1e-4,1e-2))", Axis("a.b", (), 1e-4, 1e-2, None, log=True)),
        ("a.b=interval(-1.0,0)", Axis("a.b", (), -1.0, 0, None)),
    ],
)
def test_an_axis(word: str, axis: Axis) -> None:
    (first,) = read_space([word]).axes
    assert first == axis or first == Axis(axis.key, tuple(choice.split("=")[-1] for choice in axis.choices))


def test_what_stays_and_seeds_are_apart() -> None:
    assert read_space(["mode=train", "seed=1,2", "a.b=interval(1,2)", "seed=4"]) == Space(
        ("mode=train", "seed=4"), (Axis("a.b", (), 1.0, 2.0, None),), ("1", "2")
    )
    assert read_space(["seed=range(1,4)", "a=1,2"]).seeds == ("1", "2", "3")
    assert read_space(["a=1,2"]).seeds == ()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mode=train", "a=1"], "a search needs something to vary; given mode=train a=1"),
        (["seed=1,2"], "a search needs something to vary"),
        (["seed=interval(1,2)", "a=1,2"], "seeds are an axis of their own; given seed=interval"),
        (["a=interval(2,1)"], "a: not an interval"),
        (["a=interval(1,1)"], "a: not an interval"),
        (["a=tag(log,interval(0,1))"], "a: not an interval"),
        (["a=tag(log,interval(-1,1))"], "a: not an interval"),
    ],
)
def test_what_cannot_be_searched(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_space(words)
