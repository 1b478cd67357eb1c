"""Whether BF16 matrices are multiplied in FP32: measured once for a machine, the same for all that ask."""

from __future__ import annotations

import json

import pytest
import torch

from recsys_lab.kernels import bf16_products as module


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """How often it was measured; what is measured can be set."""
    found = {"s": [1.0, 1.0], "times": 0}

    def least_s(*_):
        found["times"] += 1
        return found["s"]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(module.CHOICE, raising=False)
    monkeypatch.setattr(module, "_least_s", least_s)
    return found


def asked() -> bool:
    """As a process that has not asked before."""
    module.widened.cache_clear()
    answer = module.widened()
    module.widened.cache_clear()
    return answer


@pytest.mark.parametrize(("seconds", "expected"), [([2.0, 1.0], True), ([1.0, 2.0], False), ([1.2, 1.0], False)])
def test_only_what_is_clearly_faster_is_taken(measured, seconds, expected):
    measured["s"] = seconds
    assert asked() is expected


def test_the_next_process_reads_what_the_first_measured(measured):
    measured["s"] = [2.0, 1.0]
    assert asked()
    measured["s"] = [1.0, 2.0]
    assert asked() and measured["times"] == 1


@pytest.mark.parametrize("harm", [lambda kept: kept.write_text("{"), lambda kept: kept.chmod(0o666)])
def test_a_file_that_is_broken_or_anybodys_is_not_believed(measured, tmp_path, harm):
    asked()
    (kept,) = (tmp_path / "recsys_lab" / "kernels").glob("products-*.json")
    kept.write_text(json.dumps({"widened": True}))
    assert asked()
    harm(kept)
    assert not asked() and measured["times"] == 2


def test_the_environment_decides(measured, monkeypatch):
    for chosen in module.FORMATS:
        monkeypatch.setenv(module.CHOICE, chosen)
        assert asked() is (chosen == "fp32")
    assert measured["times"] == 0


def test_a_product_is_rounded_once():
    a, b = torch.randn(5, 300).bfloat16(), torch.randn(300, 4).bfloat16()
    assert torch.equal(module.by_widening(torch.mm, a, b), torch.mm(a.float(), b.float()).bfloat16())
    assert module.by_widening(lambda x, bias: x if bias is None else x + bias, a, None).dtype == torch.bfloat16
