"""What a whole run takes: training, evaluation, checkpoints, and what failures cost.

Failures arrive at random, at a constant rate. The expected time is Daly's (Future Generation Computer Systems 22, 2006), and the interval
of checkpoints is the one at which it is least. Its first order is Young's square root (CACM 17, 1974).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Hours. Checkpoints are no closer, however short they are.
LEAST_INTERVAL_H = 1 / 60
#: The exponent at which a run counts as one that never ends.
MOST_EXPONENT = 500.0


@dataclass(frozen=True)
class Costs:
    """What a run meets beside its work, in hours.

    Attributes:
        checkpoint: the pause of one checkpoint.
        restart: from an interruption until the training goes on, the reload of a checkpoint included.
        between_failures: the mean time between interruptions of the whole cluster; inf: there are none.
        every: of work between checkpoints; None: the interval of the least expected time.
    """

    checkpoint: float
    restart: float
    between_failures: float
    every: float | None = None


@dataclass(frozen=True)
class Bill:
    """Expected hours of a whole run and where they go, all of them paid for. A run that never ends has inf hours.

    Attributes:
        training_hours, evaluation_hours: work that is done once.
        checkpoint_hours: in which training waits for checkpoints.
        failure_hours: of restarts, and of work that is done again.
        device_hours: of all devices.
        usd: dollars; None without a price.
        usd_per_device_hour: at which they are counted.
        checkpoint_minutes: of work between checkpoints.
        checkpoint_seconds: the pause of one checkpoint.
        hours_between_failures: of the whole cluster; inf: no failures are counted.
        spot: at a spot price, with its interruptions.
    """

    training_hours: float
    evaluation_hours: float
    checkpoint_hours: float
    failure_hours: float
    hours: float
    device_hours: float
    usd: float | None
    usd_per_device_hour: float | None
    checkpoint_minutes: float
    checkpoint_seconds: float
    hours_between_failures: float
    spot: bool = False

    @property
    def cost(self) -> float:
        """Dollars, or device-hours without a price."""
        return self.device_hours if self.usd is None else self.usd


def bill_of(training: float, evaluation: float, costs: Costs, devices: int, usd_per_device_hour: float | None, spot: bool = False) -> Bill:
    """The bill of so many hours of training and of evaluation."""
    work = training + evaluation
    every = best_interval(work, costs) if costs.every is None else min(costs.every, work)
    hours = expected_hours(work, every, costs)
    in_checkpoints = work / every * costs.checkpoint
    device_hours = hours * devices
    return Bill(
        training_hours=training,
        evaluation_hours=evaluation,
        checkpoint_hours=in_checkpoints,
        failure_hours=max(hours - work - in_checkpoints, 0.0),
        hours=hours,
        device_hours=device_hours,
        usd=None if usd_per_device_hour is None else device_hours * usd_per_device_hour,
        usd_per_device_hour=usd_per_device_hour,
        checkpoint_minutes=60 * every,
        checkpoint_seconds=3600 * costs.checkpoint,
        hours_between_failures=costs.between_failures,
        spot=spot,
    )


def expected_hours(work: float, every: float, costs: Costs) -> float:
    """Of `work` hours with a checkpoint after each `every` hours of them (Daly 2006: T = M e^(R/M) (e^((t+d)/M) - 1) Ts/t).

    A failure may also come while a checkpoint is written or the run restarts.
    """
    mean = costs.between_failures
    if math.isinf(mean):
        return work * (1 + costs.checkpoint / every)
    exponents = costs.restart / mean, (every + costs.checkpoint) / mean
    if sum(exponents) > MOST_EXPONENT:
        return math.inf
    return mean * math.exp(exponents[0]) * math.expm1(exponents[1]) * work / every


def best_interval(work: float, costs: Costs) -> float:
    """Hours of work between checkpoints at which `expected_hours` is least: M (1 + W(-e^(-1-d/M))), W being Lambert's function.

    No less than a minute, and no more than all of the work.
    """
    from scipy.special import lambertw

    mean = costs.between_failures
    if math.isinf(mean):
        return work
    best = mean * (1 + lambertw(-math.exp(-1 - costs.checkpoint / mean)).real)
    return min(max(best, LEAST_INTERVAL_H), work)
