"""Which device a rank computes on.

| trainer.device | where |
|---|---|
| auto | on a GPU of its own where this machine has one for each of its ranks, else on the CPU |
| cpu | on the CPU |
| cuda | on a GPU; where ranks are more than GPUs they share them, and exchange through gloo: NCCL wants a GPU a rank |

RECSYS_LAB_DEVICE says the same where no config speaks, and before one that does. torch is imported where it is needed: a config knows only
the names.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from recsys_lab.base.environment import DEVICE, WORDS, word_of
from recsys_lab.errors import UserError
from recsys_lab.units import counted

if TYPE_CHECKING:
    import torch

DEVICES = AUTO, CPU, CUDA = WORDS[DEVICE]
#: "RANK/RANKS" of those on this machine, where a launcher starts the ranks of several hosts on one.
LOCAL_RANK = "RECSYS_LAB_LOCAL_RANK"


def device_here() -> torch.device:
    """Of this rank.

    Raises:
        UserError: where cuda is asked for and torch finds no GPU.
    """
    import torch

    choice, (rank, ranks), gpus = word_of(DEVICE) or AUTO, _local_rank(), gpus_here()
    if choice == CUDA and not gpus:
        raise UserError("no GPU is here", where="trainer.device", given=CUDA, allowed=CPU, remedy="recsys-lab doctor says what torch finds")
    if choice == CPU or not gpus or (choice == AUTO and gpus < ranks):
        return torch.device("cpu")
    return torch.device("cuda", rank % gpus)


def take(device: torch.device) -> None:
    """Makes a GPU this process's. Products of FP32 matrices are then in TF32, as the simulator prices them and TorchRec's example has it.

    NVIDIA_TF32_OVERRIDE=0 keeps them in FP32. A CPU needs nothing.
    """
    import torch

    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")


def why_no_gpu(device: torch.device) -> str:
    """Why `auto` left the GPUs of this machine alone, in one line. Empty where it did not."""
    gpus, (_, ranks) = gpus_here(), _local_rank()
    if device.type == "cuda" or not gpus or (word_of(DEVICE) or AUTO) != AUTO:
        return ""
    return f"trains on the CPU: {counted(ranks, 'rank')}, {counted(gpus, 'GPU')} here; trainer.device=cuda shares them"


def backend_of(device: torch.device) -> Literal["nccl", "gloo"]:
    """What exchanges tensors of `device`: NCCL where each rank of this machine has a GPU of its own."""
    import torch.distributed as dist

    alone = device.type == "cuda" and dist.is_nccl_available() and gpus_here() >= _local_rank()[1]
    return "nccl" if alone else "gloo"


def gpus_here() -> int:
    """GPUs that torch can use in this process."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _local_rank() -> tuple[int, int]:
    """The number of this rank on its machine, and how many are there."""
    text = os.environ.get(LOCAL_RANK) or f"{os.environ.get('LOCAL_RANK', 0)}/{os.environ.get('LOCAL_WORLD_SIZE', 1)}"
    rank, ranks = text.split("/")
    return int(rank), int(ranks)
