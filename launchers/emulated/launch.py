"""Real processes on hosts that are network namespaces: gloo's collectives through links of a set rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from launchers import agent, processes
from launchers.emulated.namespaces import Namespace
from launchers.emulated.network import DEVICE, links_of, network
from launchers.local import prepare  # noqa: F401  it looks for one beside `launch`
from recsys_lab.base.devices import LOCAL_RANK
from recsys_lab.base.ranges import CountFromZero, Factor, Hosts, Positive, RanksPerHost, Threads, Timeout

PORT = 29500  # the first host has its ports to itself


def launch(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    link_gb_s: Positive,
    loopback_gb_s: Positive | None = None,
    hosts_per_leaf: CountFromZero = 0,
    leaf_oversubscription: Factor = 1.0,
    threads_per_rank: Threads = 1,
    timeout_s: Timeout = 15.0,
) -> Any:
    """Runs `work(**arguments)` on every rank, hosts in network namespaces of this machine. Nothing of the network remains.

    Args:
        work, arguments, folder, hosts, ranks_per_host, threads_per_rank, timeout_s: those of `launchers.local.launch`.
        link_gb_s: GB/s of a host's link, one way.
        loopback_gb_s: GB/s between the ranks of a host; None: as much as the machine can.
        hosts_per_leaf, leaf_oversubscription: as in a cluster's YAML.

    Returns:
        What rank 0 returned.

    Raises:
        UserError: where this machine allows no such network.
        UserError, RankLost, RuntimeError: as `launchers.local.launch` does.
    """
    with network(hosts, links_of(hosts, link_gb_s, hosts_per_leaf, leaf_oversubscription, loopback_gb_s)) as net:
        world = hosts * ranks_per_host
        ranks = [
            processes.rank_variables(rank, world, ranks_per_host, net.address(0), PORT, threads_per_rank, timeout_s)
            | {"GLOO_SOCKET_IFNAME": DEVICE, "RECSYS_LAB_OWN_LINK": "1", LOCAL_RANK: f"{rank}/{world}"}
            for rank in range(world)
        ]
        return agent.run(work, arguments, folder, ranks, enter=partial(_enter, net.hosts))


def _enter(hosts: list[Namespace], host: int) -> None:
    """What a rank does first: it goes to its host's namespace."""
    hosts[host].enter()
