"""Bytes that the links between hosts really carried, from the kernel's counters, where ranks have a network device of their own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import torch.distributed as dist

#: The kernel counts what is sent, and sends a little after gloo says that it is done.
SETTLE_S = 0.1
DEVICES = "/proc/self/net/dev"
SENT_BYTES = 8  # the column of a device's line


def own_device() -> str | None:
    """The device between the hosts, where the launcher gave the ranks one that nobody else uses. Else None."""
    return os.environ.get("GLOO_SOCKET_IFNAME") if "RECSYS_LAB_OWN_LINK" in os.environ else None


def sent_bytes(device: str) -> int:
    """What the ranks of this host have sent over `device` so far, headers included."""
    with open(DEVICES) as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return int({name.strip(): rest for name, rest in lines.items()}[device].split()[SENT_BYTES])


@dataclass
class LinkCounter:
    """Counts over `steps` iterations. `mark` is collective. Before the first and after the last of them."""

    device: str
    marks: list[int] = field(default_factory=list)

    def mark(self) -> None:
        dist.barrier()
        time.sleep(SETTLE_S)
        self.marks.append(sent_bytes(self.device))
        dist.barrier()

    def total(self, steps: int) -> float | None:
        """Bytes an iteration over the links of all hosts, the same on every rank; None where not both marks were made. Collective."""
        own = (self.marks[1] - self.marks[0]) / steps if len(self.marks) == 2 and steps else None
        everyone: list[float | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, own if os.environ.get("LOCAL_RANK") == "0" else 0.0)
        values = [one for one in everyone if one is not None]
        return sum(values) if len(values) == len(everyone) else None
