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
        """Where nothing is converted, as DistributedDataParallel does it: times 1 / R, then the sum."""
        gradients = bucket.buffer()
        sent = codec.share(gradients.float(), group.size()) if converted else gradients.mul_(1.0 / group.size())
        work = dist.all_reduce(sent, group=group, async_op=True)
        assert work is not None
        future = work.get_future().then(lambda _: gradients.copy_(codec.decode(sent)) if converted else gradients)
        if not overlap:
            with waited("dense"):
                future.wait()
        return future

    # Its check of the hook's annotations does not know them as strings: a lambda has none.
    module.register_comm_hook(module.process_group, lambda group, bucket: average(group, bucket))
