"""Where a rank computes, by what is asked for, the GPUs that are there and the ranks that share them. No GPU is used."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from recsys_lab.base import devices
from recsys_lab.base.devices import LOCAL_RANK, backend_of, device_here
from recsys_lab.base.environment import DEVICE
from recsys_lab.errors import UserError


def as_rank(patch: pytest.MonkeyPatch, choice: str | None, gpus: int, rank: int, ranks: int) -> None:
    """A process that has so many GPUs before it."""
    patch.setattr(devices, "gpus_here", lambda: gpus)
    patch.setenv("LOCAL_RANK", str(rank))
    patch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    patch.delenv(LOCAL_RANK, raising=False)
    patch.delenv(DEVICE, raising=False) if choice is None else patch.setenv(DEVICE, choice)


@pytest.mark.parametrize(
    ("choice", "gpus", "rank", "ranks", "expected"),
    [
        (None, 0, 1, 2, "cpu"),
        (None, 2, 1, 2, "cuda:1"),
        ("auto", 8, 3, 4, "cuda:3"),
        ("auto", 1, 1, 2, "cpu"),  # not one for each: all ranks of a machine choose alike
        ("auto", 1, 0, 2, "cpu"),
        ("cpu", 8, 3, 4, "cpu"),
        ("cuda", 1, 1, 2, "cuda:0"),
        ("cuda", 2, 3, 4, "cuda:1"),
    ],
)
def test_a_rank_has_a_gpu_of_its_own_or_shares_one_where_asked(
    choice: str | None, gpus: int, rank: int, ranks: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, choice, gpus, rank, ranks)
    assert device_here() == torch.device(expected)


def test_ranks_of_several_hosts_on_one_machine_share_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second host's first rank is the machine's third: it takes the third GPU, not the first again."""
    as_rank(monkeypatch, "auto", 4, 0, 2)
    monkeypatch.setenv(LOCAL_RANK, "2/4")
    assert device_here() == torch.device("cuda:2")
    monkeypatch.setenv(LOCAL_RANK, "2/8")
    assert device_here() == torch.device("cpu")


@pytest.mark.parametrize(("gpus", "ranks", "expected"), [(2, 2, "nccl"), (1, 2, "gloo")])
def test_ranks_that_share_a_gpu_exchange_through_gloo(gpus: int, ranks: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, "cuda", gpus, 0, ranks)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert backend_of(torch.device("cuda:0")) == expected
    assert backend_of(torch.device("cpu")) == "gloo"


def test_gpus_that_are_left_alone_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where nobody chose: a laptop with one GPU starts four ranks by default."""
    as_rank(monkeypatch, "auto", 1, 0, 4)
    assert devices.why_no_gpu(device_here()).startswith("trains on the CPU: 4 ranks, 1 GPU here; ")
    for choice, gpus, ranks in (("auto", 4, 4), ("auto", 0, 4), ("cpu", 1, 4), ("cuda", 1, 4)):
        as_rank(monkeypatch, choice, gpus, 0, ranks)
        assert devices.why_no_gpu(device_here()) == ""


@pytest.mark.parametrize(
    ("choice", "told"), [("cuda", "no GPU is here"), ("tpu", "RECSYS_LAB_DEVICE: no such word; given tpu; allowed: auto, cpu, cuda")]
)
def test_what_cannot_be_had_is_refused(choice: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, choice, 0, 0, 1)
    with pytest.raises(UserError, match=told):
        device_here()
