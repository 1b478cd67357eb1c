"""Process groups of our own. What travels apart has groups of its own, so that its collectives run beside others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist
from torchrec.distributed.types import ShardingEnv

from recsys_lab.base.ranges import Timeout
from recsys_lab.base.schema import checked
from recsys_lab.errors import UserError

#: Of a collective, seconds.
TIMEOUT = "RECSYS_LAB_TIMEOUT_S"
_OPEN: list[dist.ProcessGroup] = []


def timeout() -> timedelta:
    """How long a collective waits for the others: RECSYS_LAB_TIMEOUT_S, or ten minutes. UserError where it is no number."""
    text = os.environ.get(TIMEOUT) or "600"
    try:
        seconds = float(text)
    except ValueError:
        raise UserError("not a number of seconds", where=TIMEOUT, given=text) from None
    checked(seconds, Timeout, TIMEOUT)
    return timedelta(seconds=seconds)


def own_group(groups: Sequence[Sequence[int]]) -> dist.ProcessGroup | None:
    """The one of `groups` that this rank is in, its ranks numbered as given; None where groups have one member.

    Collective: every rank makes all of them.
    """
    own = None
    for ranks in groups:
        if len(ranks) > 1:
            group = dist.new_group(list(ranks), timeout=timeout(), sort_ranks=list(ranks) == sorted(ranks))
            if dist.get_rank() in ranks:
                own = group
                _OPEN.append(group)
    return own


def group_of_threads() -> dist.ProcessGroup:
    """All ranks once more, through gloo: for threads that wait for one another beside training. Collective."""
    group = dist.new_group(backend="gloo", timeout=timeout())
    _OPEN.append(group)
    return group


def close_groups() -> None:
    """Ends every group that was made here, and with them the models that use them. A process needs it that builds one model after another.

    Collective. Each open group of gloo's keeps threads.
    """
    dist.barrier()
    while _OPEN:
        dist.destroy_process_group(_OPEN.pop())


def env_of(group: dist.ProcessGroup) -> ShardingEnv:
    """TorchRec's view of `group`. Its own constructor would make a device mesh, and with it more groups, which nothing here uses."""
    env = ShardingEnv(group.size(), group.rank())
    env.process_group = group
    return env
