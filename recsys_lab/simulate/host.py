"""The host of a rank: it issues an iteration's steps one after another, and runs ahead of its device.

An iteration takes the longer of two timelines. The device's timeline has each step when its inputs are there. The host's has the cost of
issuing, a launch for each kernel. The host may not have to wait for the device within an iteration. Then it is a whole iteration ahead, and
only the sum of its launches counts. Where it reads sizes that an exchange brings, it waits for them. Steps after that begin no sooner than
it has issued them. A CPU issues a step on the cores that compute it: its launches come before each step, and nothing runs ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan.steps import SIZES, Step
from recsys_lab.simulate.profile import Profile
from recsys_lab.units import US_PER_MS


@dataclass(frozen=True)
class Host:
    """The clock of every rank's host: `now`, and what it has been `busy` for, ms [R] or [1]. `serial`: it is the device. `stops`: it
    waits for the device within an iteration.
    """

    launch_ms: float
    serial: bool
    stops: bool
    now: np.ndarray
    busy: np.ndarray

    def on_device_ms(self, kernels: int) -> float:
        """What the launches of so many kernels take of the device."""
        return kernels * self.launch_ms if self.serial else 0.0

    def issue(self, kernels: int) -> Host:
        """Having issued a step of so many kernels."""
        took = 0.0 if self.serial else kernels * self.launch_ms
        return replace(self, now=self.now + took, busy=self.busy + took)

    def wait(self, end: np.ndarray) -> Host:
        """Having waited for the device until `end`."""
        return replace(self, now=np.maximum(self.now, end))

    @property
    def issued(self) -> np.ndarray:
        """The next step begins no sooner."""
        return self.now if self.stops and not self.serial else np.zeros_like(self.now)

    def issued_at(self, start: np.ndarray) -> np.ndarray:
        """When a step was issued that begins at `start`."""
        return start if self.serial else np.broadcast_to(self.issued, start.shape)

    @property
    def done_ms(self) -> np.ndarray:
        """When it has issued everything."""
        return np.zeros_like(self.now) if self.serial else self.now if self.stops else self.busy


def host_of(steps: Sequence[Step], cluster: Cluster, profile: Profile, begin: np.ndarray) -> Host:
    """Of an iteration of `steps`, which the host begins at `begin` [R] or [1], ms."""
    serial = cluster.device.kind == "cpu"
    return Host(profile.launch_overhead_us / US_PER_MS, serial, any(map(stops_host, steps)), begin.copy(), begin.copy())


def stops_host(step: Step) -> bool:
    """Whether the host reads what the step brings before it goes on."""
    return step.is_collective and step.role == SIZES
