"""The all-reduce of dense gradients without overlap: each bucket is waited for before the backward pass goes on (section IV-C).

Annotations are evaluated here: torch reads a hook's, and takes no text.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from recsys_lab.executor.formats import Codec, averaged_in
from recsys_lab.executor.times import waited


def block(module: nn.Module, codec: Codec) -> None:
    """Have `module`, if it is DistributedDataParallel, wait for each bucket of its gradients, which travel in the codec's format."""
    if not isinstance(module, DistributedDataParallel):
        return
    average = averaged_in(codec, next(module.parameters()).dtype) or _averaged

    def wait(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = average(group, bucket)
        with waited("dense"):
            future.wait()
        return future

    module.register_comm_hook(module.process_group, wait)


def _averaged(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As DistributedDataParallel does it: times 1 / R, then the sum."""
    work = dist.all_reduce(bucket.buffer().mul_(1.0 / group.size()), group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: bucket.buffer())
