"""Ranks find one another in a store that earlier attempts have written to.

torchrun keeps one store while it restarts ranks, with the addresses of those that died still in it. So ranks agree on a name that no
attempt before had, and write under it. Nobody counts attempts: torchrun's agents count those that they saw, and need not have seen
the same.

Every rank puts its own token into the store. The first publishes the list of all of them, again whenever it changes. Each rank confirms a
list with its own token in it. When all have confirmed one list, that is the name. A token that an earlier attempt left is in no list that
is confirmed, since its rank is gone.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from datetime import timedelta

import torch.distributed as dist

from recsys_lab.errors import RankLost

POLL_S = 0.03
PREFIX = "recsys_lab/rendezvous"


def rendezvous(store: dist.Store, rank: int, world_size: int, timeout: timedelta) -> dist.Store:
    """A part of `store` that is empty and the same for the `world_size` ranks that call this now. Raises RankLost after `timeout`."""
    token, until = uuid.uuid4().hex, time.monotonic() + timeout.total_seconds()
    store.set(f"{PREFIX}/token/{rank}", token)
    confirmed = published = ""
    while time.monotonic() < until:
        if rank == 0 and (tokens := _all(store, "token", world_size)) and ",".join(tokens) != published:
            published = ",".join(tokens)
            store.set(f"{PREFIX}/list", published)
        listed = _one(store, "list")
        name = hashlib.sha256(listed.encode()).hexdigest()[:16]
        tokens = listed.split(",")
        if len(tokens) == world_size and tokens[rank] == token:
            if name != confirmed:
                store.set(f"{PREFIX}/confirmed/{rank}", name)
                confirmed = name
            if rank == 0 and listed == published and set(_all(store, "confirmed", world_size)) == {name}:
                store.set(f"{PREFIX}/agreed/{name}", "yes")
            if store.check([f"{PREFIX}/agreed/{name}"]):
                return dist.PrefixStore(f"{PREFIX}/{name}", store)
        time.sleep(POLL_S)
    raise RankLost(f"rank {rank} waited for the others in vain", remedy="see that as many ranks start as torchrun expects")


def _one(store: dist.Store, key: str) -> str:
    return store.get(f"{PREFIX}/{key}").decode() if store.check([f"{PREFIX}/{key}"]) else ""


def _all(store: dist.Store, key: str, world_size: int) -> list[str]:
    """Of every rank. Empty while one is missing."""
    keys = [f"{PREFIX}/{key}/{rank}" for rank in range(world_size)]
    return [value.decode() for value in store.multi_get(keys)] if store.check(keys) else []
