"""Models of sequences by the C++ kernels against the same by torch's definitions, which the kernels stand for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from recsys_lab.data.batch import Events
from recsys_lab.kernels import jagged_attention
from recsys_lab.models import attention
from recsys_lab.models.dlrm_v4 import network as dlrm_v4
from recsys_lab.models.hstu import network as hstu
from recsys_lab.models.jagged import PaddedRows, places_of
from recsys_lab.models.pointwise import bucket_starts, time_buckets
from recsys_lab.models.sequence import network as sequence
from tests.models import sequences, test_dlrm_v4, test_hstu
from tests.models.sequences import NEXT_ITEM, drawn, keyed

if not jagged_attention.attends_on_cpu(torch.zeros(1)):
    pytest.skip("no C++ kernels here", allow_module_level=True)
LENGTHS = [11, 0, 1, 30, 8, 17]
MODELS = ("sasrec", "hstu", "hstu with times")
#: Where it is asked whether the kernels run.
CHOICES = ((sequence, "attends_on_cpu"), (attention, "attends_on_cpu"), (hstu, "fuses_attention"), (dlrm_v4, "fuses_attention"))


@contextlib.contextmanager
def torchs_definitions() -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        for module, name in CHOICES:
            patches.enter_context(mock.patch.object(module, name, lambda *_: False))
        yield


def model_and_batch(kind: str) -> tuple[nn.Module, Events | None, dict[str, list[list[int]]]]:
    if kind == "dlrm_v4":
        return test_dlrm_v4.built(), *test_dlrm_v4.drawn(LENGTHS)
    times = torch.randint(0, 10**7, (sum(LENGTHS),), generator=torch.Generator().manual_seed(3))
    events = Events(times, torch.zeros(len(times), dtype=torch.uint8), torch.zeros(len(LENGTHS), dtype=torch.int64))
    model = sequences.built() if kind == "sasrec" else test_hstu.built(time_bias=kind == "hstu with times")
    return model, events if kind == "hstu with times" else None, drawn(NEXT_ITEM, LENGTHS)


def outputs_and_gradients(kind: str) -> list[Tensor]:
    model, events, ids = model_and_batch(kind)
    found = model(events, keyed(ids))
    found.square().sum().backward()
    return [found.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("kind", [*MODELS, "dlrm_v4"])
def test_scores_and_gradients_are_those_of_torchs_definition(kind: str) -> None:
    ours = outputs_and_gradients(kind)
    with torchs_definitions():
        theirs = outputs_and_gradients(kind)
    for mine, true in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-4, atol=1e-5 * max(1.0, float(true.abs().max())))


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [("sasrec", "causal_softmax"), ("hstu", "causal_silu"), ("hstu with times", "causal_silu"), ("dlrm_v4", "causal_silu")],
)
def test_the_kernels_run_where_they_can(kind: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, functions = [], jagged_attention._functions()
    counted = {
        name: getattr(functions, name) for name in ("causal_softmax", "causal_silu", "causal_softmax_backward", "causal_silu_backward")
    }

    class Counted:
        def __getattr__(self, name: str) -> object:
            calls.append(name)
            return counted[name]

    monkeypatch.setattr(jagged_attention, "_functions", Counted)
    outputs_and_gradients(kind)
    assert set(calls) == {kernel, f"{kernel}_backward"}


def test_buckets_of_times_start_where_the_definition_says() -> None:
    seconds = torch.cat([torch.arange(3000), torch.randint(0, 10**12, (3000,), generator=torch.Generator().manual_seed(0))])
    starts = bucket_starts()
    assert torch.equal(torch.searchsorted(starts, seconds.float(), right=True), time_buckets(seconds))
    assert torch.equal(time_buckets(starts), torch.arange(1, len(starts) + 1))


def test_other_formats_and_padded_rows_have_torchs_definition() -> None:
    lengths, rows = torch.tensor([2, 3]), torch.zeros(5, 4)
    places = places_of(PaddedRows(torch.zeros(2, 3, 4), lengths))
    assert jagged_attention.attends_on_cpu(rows)
    assert not any(jagged_attention.attends_on_cpu(other) for other in (rows.bfloat16(), rows.to("meta")))
    assert attention.groups_of(places, lengths, fuses=True) is not None


@pytest.mark.parametrize("kind", MODELS)
def test_users_are_the_last_rows_of_the_histories(kind: str) -> None:
    """By kernels, by torch, and in a graph; the last block computes no other row."""
    model, events, ids = model_and_batch(kind)
    looked_up = model.embeddings(keyed(ids))
    times = [events.times] if events is not None else []
    read = [looked_up, *times] if kind != "sasrec" else [looked_up, ("item", "category", "time")]
    hidden, places = model.read_history(*read)
    expected = model.next_item.of_users(places.last(hidden)).detach()
    rows = []
    model.hidden.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    found = [model.users(looked_up, events)]
    with torch.no_grad():
        found.append(model.users(looked_up, events))
        with torchs_definitions():
            found.append(model.users(looked_up, events))
    assert rows == [len(LENGTHS)] * 3
    for one in found:
        torch.testing.assert_close(one.detach(), expected, rtol=1e-4, atol=1e-5)
        assert not one[1].any()  # an empty history
