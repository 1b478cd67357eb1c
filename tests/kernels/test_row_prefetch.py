"""How rows are prefetched: measured once for a machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recsys_lab.base.environment import WORDS
from recsys_lab.kernels import available
from recsys_lab.kernels.build import cache_folder
from recsys_lab.kernels.cpu import row_prefetch as module
from tests.kernels.answers import asked_anew_of

pytestmark = pytest.mark.skipif(not available(), reason="no C++ kernels on this machine")


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch, tmp_path) -> Iterator[None]:
    yield from asked_anew_of(module._answers, module.VARIABLE, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("whole", "parts", "look_ups", "expected"),
    [
        ([2.0, 1.0], [1.0, 2.0], [1.0, 2.0], (True, False, False)),
        ([1.0, 2.0], [2.0, 1.0], [2.0, 1.0], (False, True, True)),
        ([1.03, 1.0], [1.03, 1.0], [1.1, 1.0], (False, False, False)),
    ],
)
def test_the_other_way_is_taken_only_where_it_is_clearly_faster(monkeypatch, whole, parts, look_ups, expected):
    """Which calls are timed says which question is asked."""

    def least_s(usual, other, **_):
        if "second_level" in other.keywords:
            return look_ups
        assert (usual.keywords["read_first"], other.keywords["read_first"]) == (False, True)
        return whole if other.args[1] is None else parts

    monkeypatch.setattr(module, "ROWS", 64)
    monkeypatch.setattr(module.native, "evict", lambda _: True)
    monkeypatch.setattr(module, "least_s", least_s)
    assert answered() == expected


def answered() -> tuple[bool, bool, bool]:
    return module.read_first(parts=False), module.read_first(parts=True), module.second_level()


def test_rows_are_asked_for_as_usual_where_caches_cannot_be_emptied(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)
    monkeypatch.setattr(module.native, "evict", lambda _: False)
    assert answered() == (False, False, False)


def test_an_answer_of_before_look_ups_were_asked_about_is_measured_again(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)
    calls = []
    monkeypatch.setattr(module, "_measured", lambda: calls.append(1) or dict.fromkeys(module.LEAST_GAIN, True))
    for _ in range(2):
        module._answers.cache_clear()
        assert module.second_level() is True
    (kept,) = cache_folder().glob("rows-*.json")
    kept.write_text('{"read_first": false}')
    module._answers.cache_clear()
    assert module.read_first(parts=True) is True
    assert len(calls) == 2


def test_the_environment_decides(monkeypatch):
    monkeypatch.setattr(module, "answers", lambda *_: pytest.fail("measured"))
    for word, expected in zip(WORDS[module.VARIABLE], (False, True)):
        monkeypatch.setenv(module.VARIABLE, word)
        module._answers.cache_clear()
        assert answered() == (expected, expected, expected)


def test_it_can_be_measured(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)
    assert set(module._measured()) == set(module.LEAST_GAIN)
