"""What Lightning calls the device of a rank. Its own accelerator of GPUs refuses more ranks than there are GPUs."""

from __future__ import annotations

import torch
from lightning.pytorch.accelerators import Accelerator, CPUAccelerator, CUDAAccelerator

from recsys_lab.base.devices import device_here


class Gpus(CUDAAccelerator):
    """The GPU of this rank, whatever the number that the launcher's host gives it: several such hosts may be one machine."""

    @staticmethod
    def parse_devices(devices: int) -> int:  # type: ignore[override]
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:  # type: ignore[override]
        return [device_here()] * devices


def accelerator_of(device: torch.device) -> Accelerator:
    """Lightning's, for a rank that trains on `device`."""
    return Gpus() if device.type == "cuda" else CPUAccelerator()
