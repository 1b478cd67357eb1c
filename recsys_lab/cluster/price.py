"""What a device costs an hour: the user's own figure, or a provider's list price with its day and source."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.base.ranges import Count, Day, Positive

GIVEN = "given"


@dataclass(frozen=True)
class ListPrice:
    """What a provider asked on a day, on demand. Its cluster checks it.

    Attributes:
        usd_per_device_hour: dollars.
        date: of the day.
        source: where it was seen.
        device: the name of the device that it is of, and of no other; None: whatever the cluster has.
        devices: of the machine that it is of. Clusters of another size are priced as so many of it. None: of any size.
    """

    usd_per_device_hour: Positive
    date: Day
    source: str
    device: str | None = None
    devices: Count | None = None


@dataclass(frozen=True)
class Price:
    """`origin`: "given", or "list price of 2026-09-20" with its `date` and `source`.

    `extrapolates`: of a list price, from how many devices to how many; None where they are as many.
    """

    usd_per_device_hour: float
    origin: str = GIVEN
    date: str | None = None
    source: str | None = None
    extrapolates: str | None = None

    @staticmethod
    def of_list(listed: ListPrice, devices: int) -> Price:
        """Of a cluster with so many devices."""
        other = f"from {listed.devices} devices to {devices:,}" if listed.devices not in (None, devices) else None
        return Price(listed.usd_per_device_hour, f"list price of {listed.date}", listed.date, listed.source, other)

    @property
    def words(self) -> str:
        """`3.99 $ a device-hour (list price of 2026-09-20, https://lambda.ai/instances, extrapolated from 8 devices to 64)`."""
        whence = [self.origin, self.source, self.extrapolates and f"extrapolated {self.extrapolates}"]
        return f"{self.usd_per_device_hour:,.2f} $ a device-hour ({', '.join(filter(None, whence))})"
