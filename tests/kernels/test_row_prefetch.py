"""How rows are prefetched: measured once for a machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recsys_lab.kernels import available
from recsys_lab.kernels import row_prefetch as module

pytestmark = pytest.mark.skipif(not available(), reason="no C++ kernels on this machine")


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch, tmp_path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(module.VARIABLE, raising=False)
    module.read_first.cache_clear()
    yield
    module.read_first.cache_clear()


@pytest.mark.parametrize(("seconds", "expected"), [([2.0, 1.0], True), ([1.0, 2.0], False), ([1.1, 1.0], False)])
def test_rows_are_read_first_only_where_that_is_clearly_faster(monkeypatch, seconds, expected):
    monkeypatch.setattr(module, "ROWS", 64)
    monkeypatch.setattr(module.native, "evict", lambda _: True)
    monkeypatch.setattr(module, "least_s", lambda *_, **__: seconds)
    assert module.read_first() is expected


def test_rows_are_asked_to_write_where_caches_cannot_be_emptied(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)
    monkeypatch.setattr(module.native, "evict", lambda _: False)
    assert module.read_first() is False


def test_the_environment_decides(monkeypatch):
    monkeypatch.setattr(module, "answers", lambda *_: pytest.fail("measured"))
    for word, expected in zip(module.WORDS, (False, True)):
        monkeypatch.setenv(module.VARIABLE, word)
        module.read_first.cache_clear()
        assert module.read_first() is expected


def test_it_can_be_measured(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)
    assert set(module._measured()) == {"read_first"}
