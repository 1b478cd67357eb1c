"""The emulated network: hosts behind shaped links, in racks behind a shared link where there are several.

    host 0: eth0 ──┐            ┌── eth0 :host 2        every ── is a pair of veth devices, shaped at both ends by a
    host 1: eth0 ──┴ br0 ── br1 ┴── eth0 :host 3        token bucket; bridges lie in a namespace of their own

What ranks of one host say to each other goes through its own loopback and never meets a link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from launchers.emulated.namespaces import Namespace, Namespaces
from recsys_lab.errors import UserError

DEVICE = "eth0"
MTU = 1500
#: Buckets of 64 kB or less cut the kernel's large frames up and burn the CPU. Queues of less than some MB collapse under an all-to-all.
BURST_KB, QUEUE_KB, TRUNK_QUEUE_KB, LOOPBACK_QUEUE_KB = 128, 8192, 32768, 8192
MBIT_PER_GB = 8000.0
#: What two cores can still send and receive; beyond it the processor is measured and not the link.
FASTEST_GB_S = 0.25


@dataclass(frozen=True)
class Links:
    """Rates in GB/s one way.

    They are of a host's link, of the link between two racks (None: one rack), and of the loopback (None: unshaped).
    """

    host_gb_s: float
    racks: int = 1
    trunk_gb_s: float | None = None
    loopback_gb_s: float | None = None

    def __post_init__(self) -> None:
        where = "launcher.link_gb_s"
        if not 0 < self.host_gb_s <= FASTEST_GB_S:
            raise UserError(
                "this machine cannot emulate a link of that rate",
                where=where,
                given=f"{self.host_gb_s:g} GB/s",
                allowed=f"more than 0, at most {FASTEST_GB_S:g}",
                remedy="use cluster=emulated_4x2, or give launcher.link_gb_s",
            )
        if self.racks not in (1, 2):
            raise UserError("so many racks cannot be emulated", where="cluster.hosts_per_leaf", given=f"{self.racks} racks", allowed="1, 2")
        assert self.racks == 1 or self.trunk_gb_s is not None


def links_of(hosts: int, link_gb_s: float, hosts_per_leaf: int, leaf_oversubscription: float, loopback_gb_s: float | None = None) -> Links:
    """Of a cluster: its hosts in racks, where they are more than a leaf switch has (`recsys_lab.cluster.Cluster`)."""
    if not hosts_per_leaf or hosts <= hosts_per_leaf:
        return Links(link_gb_s, loopback_gb_s=loopback_gb_s)
    trunk_gb_s = hosts_per_leaf * link_gb_s / leaf_oversubscription
    return Links(link_gb_s, math.ceil(hosts / hosts_per_leaf), trunk_gb_s, loopback_gb_s)


@dataclass(frozen=True)
class Network:
    """A running one. `hosts`: their namespaces."""

    hosts: list[Namespace]
    switch: Namespace

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def cut(self, host: int) -> None:
        """Takes the host off the network."""
        self.switch.run(["ip", "link", "set", f"p{host}", "down"])

    def mend(self, host: int) -> None:
        self.switch.run(["ip", "link", "set", f"p{host}", "up"])


@contextmanager
def network(hosts: int, links: Links) -> Iterator[Network]:
    """`hosts` joined by `links`, until the end of the context. Raises UserError where this machine does not allow it."""
    with Namespaces(hosts + 1) as (switch, *others):
        running = Network(others, switch)
        try:
            _connect(running, links)
        except RuntimeError as error:
            raise UserError(
                "this machine cannot shape links", where="launcher emulated", given=str(error), remedy="use launcher=local"
            ) from None
        yield running


def _connect(network: Network, links: Links) -> None:
    switch = network.switch
    _no_ipv6(switch)
    for rack in range(links.racks):
        switch.run(["ip", "link", "add", f"br{rack}", "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"])
        switch.run(["ip", "link", "set", f"br{rack}", "up"])
    for number, host in enumerate(network.hosts):
        _no_ipv6(host)
        pair = ["type", "veth", "peer", "name", f"p{number}", "mtu", str(MTU), "netns", str(switch.pid)]
        host.run(["ip", "link", "add", DEVICE, "mtu", str(MTU), *pair])
        switch.run(["ip", "link", "set", f"p{number}", "master", f"br{number * links.racks // len(network.hosts)}", "up"])
        host.run(["ip", "address", "add", f"{network.address(number)}/24", "dev", DEVICE])
        host.run(["ip", "link", "set", "lo", "up"])
        host.run(["ip", "link", "set", DEVICE, "up"])
        _reno(host, network.address(number))
        _shape(host, DEVICE, links.host_gb_s, BURST_KB, QUEUE_KB)
        _shape(switch, f"p{number}", links.host_gb_s, BURST_KB, QUEUE_KB)
        if links.loopback_gb_s is not None:
            _shape(host, "lo", links.loopback_gb_s, 2 * BURST_KB, LOOPBACK_QUEUE_KB)
    if links.racks == 2:
        assert links.trunk_gb_s is not None
        switch.run(["ip", "link", "add", "t0", "type", "veth", "peer", "name", "t1"])
        for rack in (0, 1):
            switch.run(["ip", "link", "set", f"t{rack}", "master", f"br{rack}", "up"])
            _shape(switch, f"t{rack}", links.trunk_gb_s, BURST_KB, TRUNK_QUEUE_KB)


def _shape(where: Namespace, device: str, gb_s: float, burst_kb: int, queue_kb: int) -> None:
    rate = f"{gb_s * MBIT_PER_GB:.0f}mbit"
    where.run(["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", f"{burst_kb}kb", "limit", f"{queue_kb}kb"])


def _no_ipv6(where: Namespace) -> None:
    where.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true"])


def _reno(host: Namespace, address: str) -> None:
    """Reno on the route, where the kernel has it: bbr, the default of some, sends up to a tenth twice."""
    route = ["ip", "route", "change", "10.77.0.0/24", "dev", DEVICE, "src", address, "congctl", "reno"]
    host.run(["sh", "-c", f"{' '.join(route)} 2>/dev/null || true"])
