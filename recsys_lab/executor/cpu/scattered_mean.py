"""Dense gradients averaged by a reduce-scatter and an all-gather, beside compute (Kalamkar et al. 2020, figure 2).

A thread and a process group of their own do it: gloo's reduce-scatter is an all-reduce of a copy, and has no future. So each rank sends
every other its chunk in an all-to-all, as many bytes as a reduce-scatter's, and adds up its own. Buckets follow one another.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from recsys_lab.executor.cpu.threads import COMMUNICATION
from recsys_lab.executor.formats import Codec
from recsys_lab.executor.groups import own_group
from recsys_lab.executor.recorded import named
from recsys_lab.executor.times import DENSE, waited

Future = torch.futures.Future


def average_scattered(module: nn.Module, codec: Codec, overlap: bool) -> None:
    """Have `module`, if it is DistributedDataParallel, average its gradients so. Without `overlap` the backward pass waits for each."""
    if not isinstance(module, DistributedDataParallel):
        return
    mean = ScatteredMean(codec)

    def average(bucket: dist.GradBucket) -> Future:
        future = mean.start(bucket.buffer())
        if not overlap:
            with waited("dense"):
                future.wait()
        return future

    # Its check of the hook's annotations does not know them as strings: a lambda has none.
    module.register_comm_hook(module.process_group, lambda _, bucket: average(bucket))


class ScatteredMean:
    """Averages buckets of gradients over all ranks, in the format of `codec`. Collective: every rank makes one."""

    def __init__(self, codec: Codec):
        group = own_group([list(range(dist.get_world_size()))])
        assert group is not None, "more than one rank"
        self.codec, self.group = codec, group
        self._buckets: queue.SimpleQueue[tuple[torch.Tensor, Future]] = queue.SimpleQueue()
        named_as = threading.Event()
        threading.Thread(target=self._run, args=(named_as,), daemon=True).start()
        named_as.wait()

    def start(self, gradients: torch.Tensor) -> Future:
        """`gradients`, the same number on every rank, become their mean. The future has them then. It raises what the collectives raise."""
        arrived: Future = torch.futures.Future()
        self._buckets.put((gradients, arrived))
        return arrived.then(_value)

    def _run(self, named_as: threading.Event) -> None:
        with contextlib.suppress(OSError):  # by its name `keep_apart` gives it the cores of communication
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(f"{COMMUNICATION[0]}mean")
        named_as.set()
        while True:
            gradients, arrived = self._buckets.get()
            try:
                with named(DENSE):
                    self._average(gradients)
                arrived.set_result(gradients)
            except Exception as error:  # noqa: BLE001  whoever waits for it raises it
                arrived.set_result(error)

    def _average(self, gradients: torch.Tensor) -> None:
        ranks, own_rank, count = self.group.size(), self.group.rank(), gradients.numel()
        sent = self.codec.share(gradients.float(), ranks)
        chunk = chunk_of(count, ranks)
        sizes = [min(chunk, max(0, count - rank * chunk)) for rank in range(ranks)]
        own = sizes[own_rank]
        received = sent.new_empty(ranks * own)
        dist.all_to_all_single(received, sent, [own] * ranks, sizes, group=self.group)
        total = sent.new_zeros(chunk)
        total[:own] = received.view(ranks, own).sum(0, dtype=torch.float32)
        whole = sent.new_empty(ranks * chunk)
        dist.all_gather_into_tensor(whole, total, group=self.group)
        gradients.copy_(self.codec.decode(whole[:count]))


def chunk_of(count: int, ranks: int) -> int:
    """Numbers that a rank adds up: the last ranks may have fewer."""
    return -(-count // ranks)


def _value(arrived: Future) -> torch.Tensor:
    """What C++ takes for an error is raised, not set."""
    value = arrived.value()
    if isinstance(value, BaseException):
        raise value
    return value
