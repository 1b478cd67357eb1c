"""Lightning trains on the device that a rank has. No GPU is used."""

from __future__ import annotations

import pytest
import torch

from recsys_lab.base import devices
from recsys_lab.train.accelerator import Gpus, accelerator_of


def test_each_rank_of_hosts_on_one_machine_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of two ranks on a machine of four GPUs: the last rank is the second of its host, and has the fourth GPU."""
    monkeypatch.setattr(devices, "gpus_here", lambda: 4)
    monkeypatch.setenv(devices.LOCAL_RANK, "3/4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Gpus.get_parallel_devices(2)[1] == devices.device_here() == torch.device("cuda:3")
    assert isinstance(accelerator_of(torch.device("cuda:3")), Gpus)
    assert not isinstance(accelerator_of(torch.device("cpu")), Gpus)
