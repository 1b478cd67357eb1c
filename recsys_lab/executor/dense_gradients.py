"""The all-reduce of dense gradients in the format that travels, beside the backward pass or without overlap (Kalamkar et al. 2020,
section IV-C).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from recsys_lab.executor.formats import Codec
from recsys_lab.executor.times import waited


def average_in(module: nn.Module, codec: Codec, overlap: bool = True) -> None:
    """Have `module`, if it is DistributedDataParallel, send its gradients in the codec's format. Without `overlap` the backward pass waits
    for each bucket.
    """
    if not isinstance(module, DistributedDataParallel):
        return
    converted = next(module.parameters()).dtype != codec.dtype
    if overlap and not converted:  # DistributedDataParallel's own will do
        return

    def average(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = _converted(group, bucket.buffer(), codec) if converted else _averaged(group, bucket.buffer())
        if not overlap:
            with waited("dense"):
                future.wait()
        return future

    # Its check of the hook's annotations does not know them as strings: a lambda has none.
    module.register_comm_hook(module.process_group, lambda group, bucket: average(group, bucket))


def _converted(group: dist.ProcessGroup, gradients: torch.Tensor, codec: Codec) -> torch.futures.Future[torch.Tensor]:
    """Summed in the codec's format."""
    sent = codec.share(gradients.float(), group.size())
    return _sum(group, sent).then(lambda _: gradients.copy_(codec.decode(sent)))


def _averaged(group: dist.ProcessGroup, gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """As DistributedDataParallel does it: times 1 / R, then the sum."""
    return _sum(group, gradients.mul_(1.0 / group.size())).then(lambda _: gradients)


def _sum(group: dist.ProcessGroup, sent: torch.Tensor) -> torch.futures.Future:
    work = dist.all_reduce(sent, group=group, async_op=True)
    assert work is not None
    return work.get_future()
