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

    def words(self, device: str) -> str:
        """`one in 50,700 device-hours (source, 2024-07-31)`. `device`: the one that it is taken for."""
        taken = f", taken for {device}" if device != self.device else ""
        return f"one in {self.device_hours:,.0f} device-hours of {self.device}{taken} ({self.source}, {self.date})"
