"""What every process of a calibration runs."""

from __future__ import annotations

import os
import sys
import time
import warnings

import torch.distributed as dist

from recsys_lab.base.devices import device_here, take
from recsys_lab.base.environment import DEVICE, word_of
from recsys_lab.calibrate import caches, collectives, ranks
from recsys_lab.calibrate.measured import CollectiveTime, Measured
from recsys_lab.train.memory import keep_memory
from recsys_lab.train.process_group import start_process_group


def measure(hosts: int, ranks_per_host: int, device: str) -> Measured:
    """As the rank that the environment names, on `device`, of DEVICES. Progress goes to the first rank's stderr."""
    say = _begin(device)
    machine = ranks.measure(say)
    of_caches = caches.measure(say)
    times = collectives.measure(hosts, ranks_per_host, say)
    return Measured(hosts, ranks_per_host, len(os.sched_getaffinity(0)), machine, tuple(times), of_caches)


def measure_collectives(hosts: int, ranks_per_host: int, device: str) -> list[CollectiveTime]:
    """As `measure`, but nothing else."""
    return collectives.measure(hosts, ranks_per_host, _begin(device))


def _begin(device: str) -> ranks.Say:
    """Joins the other ranks."""
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch renames its collectives
    keep_memory()  # as training does: buffers are not cleared and mapped again each time
    os.environ[DEVICE] = word_of(DEVICE) or device
    take(device_here())
    start_process_group()
    began = time.perf_counter()

    def say(text: str) -> None:
        if dist.get_rank() == 0:
            print(f"  {time.perf_counter() - began:5.1f} s  {text}", file=sys.stderr, flush=True)

    return say


def leave() -> None:
    """Ends the process group, so that its threads are gone before Python is."""
    dist.destroy_process_group()
