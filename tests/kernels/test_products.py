"""Which way of multiplying is taken: measured once for a machine, the same for all that ask."""

from __future__ import annotations

import json

import pytest
import torch

from recsys_lab.base.environment import WORDS
from recsys_lab.kernels import products as module


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """How often it was measured; what is measured can be set."""
    found = {"s": [1.0, 1.0], "times": 0}

    def least_s(*_):
        found["times"] += 1
        return found["s"]

    module.by_tiles()  # the kernels are loaded before the folder is another one
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in module.CHOICES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(module, "least_s", least_s)
    monkeypatch.setattr(module, "multiplies_bf16", lambda: True)
    return found


def asked(question: str = "widened") -> bool:
    """As a process that has not asked before."""
    for cached in (module._answer, module._answers):
        cached.cache_clear()
    try:
        return getattr(module, question)()
    finally:
        for cached in (module._answer, module._answers):
            cached.cache_clear()


@pytest.mark.parametrize(("seconds", "expected"), [([2.0, 1.0], True), ([1.0, 2.0], False), ([1.2, 1.0], False)])
def test_bf16_is_widened_only_where_that_is_clearly_faster(measured, seconds, expected):
    measured["s"] = seconds
    assert asked() is expected


@pytest.mark.parametrize(("seconds", "expected"), [([2.0, 1.0], True), ([1.0, 1.0], True), ([1.0, 2.0], False)])
def test_products_by_weights_are_torchs_unless_onednn_is_clearly_faster(measured, seconds, expected):
    """Its transposed gradient costs as well."""
    measured["s"] = seconds
    assert asked("by_torch") is expected


def test_without_onednns_bf16_it_is_widened_and_nothing_is_measured_of_it(measured, monkeypatch):
    """A product of 1,024 samples would take seconds."""
    monkeypatch.setattr(module, "multiplies_bf16", lambda: False)
    monkeypatch.setattr(module.dense, "has_tiles", lambda: False)
    monkeypatch.setenv(module.CHOICES["widened"], "bf16")
    measured["s"] = [2.0, 1.0]
    assert asked() and not asked("by_turning") and asked("by_torch")
    assert measured["times"] == 1


def test_tiles_are_used_only_where_the_processor_has_them(measured, monkeypatch):
    measured["s"] = [2.0, 1.0]
    monkeypatch.setattr(module.dense, "has_tiles", lambda: False)
    assert not asked("by_tiles")
    monkeypatch.setenv(module.CHOICES["by_tiles"], "tiles")
    assert not asked("by_tiles")


def test_the_next_process_reads_what_the_first_measured(measured):
    measured["s"] = [2.0, 1.0]
    assert asked() and asked("by_torch")
    first = measured["times"]
    measured["s"] = [1.0, 2.0]
    assert asked() and asked("by_torch") and measured["times"] == first


def test_a_file_that_is_broken_is_measured_again(measured, tmp_path):
    asked()
    first = measured["times"]
    (kept,) = (tmp_path / "recsys_lab" / "kernels").glob("products-*.json")
    kept.write_text(json.dumps({question: question == "widened" for question in module.CHOICES}))
    assert asked()
    kept.write_text("{")
    assert not asked() and measured["times"] == 2 * first


def test_the_environment_decides(measured, monkeypatch):
    monkeypatch.setattr(module.dense, "has_tiles", lambda: True)
    monkeypatch.setattr(module, "available", lambda: True)
    for question, variable in module.CHOICES.items():
        words = WORDS[variable]
        for word in words:
            monkeypatch.setenv(variable, word)
            assert asked(question) is (word == words[1])
    assert measured["times"] == 0


def test_it_can_be_measured(monkeypatch):
    for shape in ("SHAPE", "WIDE_SHAPE"):
        monkeypatch.setattr(module, shape, (16, 16, 16))
    assert set(module._measured()) == set(module.CHOICES)


def test_a_product_is_rounded_once():
    a, b = torch.randn(5, 300).bfloat16(), torch.randn(300, 4).bfloat16()
    assert torch.equal(module.by_widening(torch.mm, a, b), torch.mm(a.float(), b.float()).bfloat16())
    assert module.by_widening(lambda x, bias: x if bias is None else x + bias, a, None).dtype == torch.bfloat16
