"""What Lightning calls the device of a rank. Its own accelerator of GPUs refuses more ranks than there are GPUs."""

from __future__ import annotations

import torch
from lightning.pytorch.accelerators import Accelerator, CPUAccelerator, CUDAAccelerator


class Gpus(CUDAAccelerator):
    """A GPU for each rank of a host, shared in turn where ranks are more."""

    @staticmethod
    def parse_devices(devices: int) -> int:  # type: ignore[override]
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:  # type: ignore[override]
        return [torch.device("cuda", rank % torch.cuda.device_count()) for rank in range(devices)]


def accelerator_of(device: torch.device) -> Accelerator:
    """Lightning's, for a rank that trains on `device`."""
    return Gpus() if device.type == "cuda" else CPUAccelerator()
