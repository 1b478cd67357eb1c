"""The process group of a rank, through the backend that records collectives."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from recsys_lab.executor import groups, recorded, torch_private
from recsys_lab.train.rendezvous import rendezvous
from recsys_lab.train.waiting import ending_on_signals

#: How long ranks wait at least for one another to start. They import for a while, and longer on a busy machine.
JOIN = timedelta(seconds=120)


@ending_on_signals()
def start_process_group() -> None:
    """Joins the process group that the environment names (torchrun's variables)."""
    if dist.is_initialized():
        return
    store, rank, world_size = _store(max(groups.timeout(), JOIN))
    store.set_timeout(groups.timeout())
    if "TORCHELASTIC_RUN_ID" in os.environ:
        store = rendezvous(store, rank, world_size, max(groups.timeout(), JOIN))
    dist.init_process_group(recorded.register(), store=store, rank=rank, world_size=world_size, timeout=groups.timeout())


def wait_at_most(seconds: float) -> None:
    """How long collectives wait for the others from now on, also those of the process group that is there already."""
    os.environ[groups.TIMEOUT] = str(seconds)
    if dist.is_initialized():
        torch_private.wait_for_others(groups.timeout())


def _store(timeout: timedelta) -> tuple[dist.Store, int, int]:
    """The store that the environment names, this rank and the world's size. A rank that was given a listening socket serves it there."""
    listener = os.environ.pop("RECSYS_LAB_LISTENER", None)
    if listener is None:
        return next(dist.rendezvous("env://", timeout=timeout))
    address, world_size = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), int(os.environ["WORLD_SIZE"])
    return dist.TCPStore(*address, world_size, is_master=True, timeout=timeout, master_listen_fd=int(listener)), 0, world_size
