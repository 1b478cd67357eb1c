"""Large results past the caches: the same bits, and a choice that is measured once for a machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from recsys_lab.base.environment import WORDS
from recsys_lab.kernels import Lookups, available, bags, dense, rows, torch_embedding
from recsys_lab.kernels.cpu import nontemporal_stores as module
from tests.kernels.answers import asked_anew_of

pytestmark = pytest.mark.skipif(not available(), reason="no C++ kernels on this machine")


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch, tmp_path) -> Iterator[None]:
    yield from asked_anew_of(module._answer, module.VARIABLE, monkeypatch, tmp_path)


@pytest.fixture(params=WORDS[module.VARIABLE])
def way(request, monkeypatch) -> str:
    """Every result is large enough."""
    monkeypatch.setenv(module.VARIABLE, request.param)
    monkeypatch.setattr(module, "LARGE", 0)
    return request.param


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32 if x.element_size() == 4 else torch.int16)


@pytest.mark.parametrize("dim", [1, 16, 24, 32, 64, 100, 128, 160])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bags_of_one_id_are_the_definitions_bits(way, dtype, out_dtype, dim):
    """Among others, with zeros of both signs. A sum from zero has no negative zero."""
    features, samples, count = 3, 41, 200
    weight = torch.randn(count, dim).to(dtype)
    weight[::3, ::2], weight[1::5] = -0.0, 0.0
    lengths = torch.randint(0, 4, (features * samples,)).clamp(max=2)
    lengths[: 2 * samples] = 1
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    for ids in (torch.randint(0, count // 2, (int(offsets[-1]),)), torch.randint(0, count // 2, (int(offsets[-1]),), dtype=torch.int32)):
        for mode in ("sum", "mean"):
            of = Lookups(ids, offsets, features, torch.tensor([0, count // 2, 7]), mode=mode)
            exact = torch_embedding.bags(weight, of).to(out_dtype)
            room = torch.full((samples, features * dim + 64), 7.0, dtype=out_dtype)
            for out in (torch.empty(samples, features * dim, dtype=out_dtype), room[:, : features * dim], room[:, 3 : features * dim + 3]):
                assert torch.equal(bits(bags(weight, of, out_dtype, out=out).contiguous()), bits(exact))
            assert bool((room[:, features * dim + 3 :] == 7).all())


@pytest.mark.parametrize("dim", [0, 1, 16, 24, 64, 128, 160])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_as_they_are_stored(way, dtype, out_dtype, dim):
    """A negative zero too: nothing is added to a row of a sequence."""
    weight = torch.randn(50, dim).to(dtype)
    weight[::3] = -0.0
    ids = torch.randint(0, 50, (333,))
    assert torch.equal(bits(rows(weight, ids, out_dtype)), bits(weight[ids].to(out_dtype)))


@pytest.mark.parametrize("dim", [16, 24, 64, 128, 160])
def test_gradients_of_dots_have_the_same_bits_past_the_caches(monkeypatch, dim):
    monkeypatch.setattr(module, "LARGE", 0)
    parts = [torch.randn(33, 1, dim), torch.randn(33, 6, dim)]
    grad, found = torch.randn(33, dim + 21), []
    for word in WORDS[module.VARIABLE]:
        monkeypatch.setenv(module.VARIABLE, word)
        module._answer.cache_clear()
        found.append(dense.pair_dots_backward(parts, grad, lead=True))
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(*found))


def test_wrong_ids_are_found_past_the_caches(way):
    weight, offsets = torch.randn(9, 64), torch.arange(6)
    with pytest.raises(IndexError, match="id 9 at position 3"):
        bags(weight, Lookups(torch.tensor([0, 8, 1, 9, 2]), offsets))


@pytest.mark.parametrize(("times", "expected"), [([2.0, 1.0], True), ([1.0, 2.0], False), ([1.05, 1.0], False)])
def test_the_other_way_is_taken_only_where_it_is_clearly_faster(monkeypatch, times, expected):
    monkeypatch.setattr(module.native, "evict", lambda _: True)
    monkeypatch.setattr(module, "least_s", lambda *calls, before: times)
    large = torch.empty(module.LARGE // 256, 64)
    assert module.nontemporal_stores((large,), 64) is expected


def test_small_results_and_rows_that_share_lines_are_never_asked_about(monkeypatch):
    monkeypatch.setattr(module, "answers", lambda *_: pytest.fail("measured"))
    room = torch.empty(module.LARGE // 256 + 1, 64)
    assert not module.nontemporal_stores((room[: len(room) // 2],), 64)
    assert not module.nontemporal_stores((room,), 8)
    assert not module.nontemporal_stores((room.view(-1)[1 : 1 - 64].view(-1, 64),), 64)


def test_results_stay_in_the_caches_where_those_cannot_be_emptied(monkeypatch):
    monkeypatch.setattr(module.native, "evict", lambda _: False)
    assert module._measured() == {module.QUESTION: False}


def test_it_can_be_measured():
    assert set(module._measured()) == {module.QUESTION}
