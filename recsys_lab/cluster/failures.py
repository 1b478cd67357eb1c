"""How often a device stops the training of all of them."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.base.ranges import Day, Positive


@dataclass(frozen=True)
class Failures:
    """Interruptions of a training that were counted. Its cluster checks it.

    Attributes:
        device_hours: between interruptions of one device, its part of host and network included. N devices stop N times as often.
        date: of the publication.
        source: where the count is from.
        device: the name of the device that was counted.
    """

    device_hours: Positive
    date: Day
    source: str
    device: str
