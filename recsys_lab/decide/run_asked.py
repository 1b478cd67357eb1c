"""What is asked of a whole run: `samples=4.2e9 spot=h100x64:1.10@0.05 target_hours=24`, and what it is told to assume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import NotNegative, Positive
from recsys_lab.base.schema import checked
from recsys_lab.decide.sizes import sizes_of
from recsys_lab.errors import UserError, did_you_mean

#: Of a run, or of a second.
Samples = Annotated[float, Strict(), Interval(ge=1, le=1e18)]
NUMBERS: dict[str, Any] = {
    "samples": Samples,
    "hours": Positive,
    "evaluation": NotNegative,
    "checkpoint_minutes": Positive,
    "checkpoint_gb_s": Positive,
    "restart_minutes": NotNegative,
    "target_hours": Positive,
    "target_samples_per_s": Positive,
}
KEYS = (*NUMBERS, "spot")
#: Minutes from an interruption to the start of the reload: to notice it, replace the host and start the processes. A guess.
RESTART_MINUTES = 10.0
#: The keys that only say how a run is billed.
OF_A_RUN = ("evaluation", "checkpoint_minutes", "checkpoint_gb_s", "restart_minutes", "target_hours", "spot")


@dataclass(frozen=True)
class Spot:
    """One more way to pay for a cluster. `interruptions`: of a host in an hour; 0: none are counted."""

    usd_per_device_hour: float
    interruptions: float = 0.0


@dataclass(frozen=True)
class RunAsked:
    """Of one whole run. None: not said.

    Attributes:
        samples: to train on. `hours` says them otherwise.
        hours: as many samples as the cheapest combination on the first cluster trains in so many hours of training alone.
        evaluation: samples to evaluate for each that is trained.
        checkpoint_minutes: of work between checkpoints.
        checkpoint_gb_s: GB/s at which a host writes and reads them.
        restart_minutes: from an interruption to the start of the reload.
        target_hours: in which the whole run must end.
        target_samples_per_s: that training must reach.
        spot: offers by cluster.
    """

    samples: float | None = None
    hours: float | None = None
    evaluation: float | None = None
    checkpoint_minutes: float | None = None
    checkpoint_gb_s: float | None = None
    restart_minutes: float | None = None
    target_hours: float | None = None
    target_samples_per_s: float | None = None
    spot: Mapping[str, Spot] = field(default_factory=dict)

    @property
    def is_billed(self) -> bool:
        return self.samples is not None or self.hours is not None

    @property
    def has_target(self) -> bool:
        return self.target_hours is not None or self.target_samples_per_s is not None


def parse_run(words: Mapping[str, str], labels: Sequence[str]) -> RunAsked:
    """Reads the values of `KEYS`. `labels`: the clusters. Raises UserError for what is no such value, or lacks the run that it is of."""
    numbers = {key: number_of(key, words[key], kind) for key, kind in NUMBERS.items() if key in words}
    if "samples" in numbers and "hours" in numbers:
        given = f"samples={words['samples']} hours={words['hours']}"
        raise UserError("the length of a run is said twice", where="samples", given=given, remedy="drop one of the two")
    asked = RunAsked(**numbers, spot=_spot(words["spot"], labels) if "spot" in words else {})
    lacking = [key for key in OF_A_RUN if key in words]
    if lacking and not asked.is_billed:
        key = lacking[0]
        remedy = "say how many samples to train on: samples=4.2e9, or hours=24"
        raise UserError("of a run whose length is not known", where=key, given=f"{key}={words[key]}", remedy=remedy)
    return asked


def number_of(key: str, text: str, kind: Any) -> float:
    """Raises UserError for what is no number, and for one out of its range."""
    try:
        number = float(text)
    except ValueError:
        raise UserError("not a number", where=key, given=text, allowed="a number, such as 4.2e9 or 24") from None
    return checked(number, kind, key)


def _spot(text: str, labels: Sequence[str]) -> dict[str, Spot]:
    """`h100x64:1.10@0.05,a100x8..128:0.70`."""
    offers: dict[str, Spot] = {}
    for item in (one.strip() for one in text.strip("[]").split(",")):
        for offer in sizes_of(item, "spot")[1]:
            label, colon, rest = offer.partition(":")
            price, at, rate = rest.partition("@")
            if not colon or not price or (at and not rate):
                allowed = "a cluster, its price and its interruptions of a host in an hour, such as h100x64:1.10@0.05"
                raise UserError("not an offer", where="spot", given=item or "nothing", allowed=allowed)
            if label not in labels:
                near = did_you_mean(label, labels)
                raise UserError("not one of clusters=", where="spot", given=label, allowed=", ".join(labels), remedy=near)
            if label in offers:
                raise UserError("named twice", where="spot", given=label, remedy=f"give {label} one offer")
            usd = number_of(f"spot: price of {label}", price, Positive)
            offers[label] = Spot(usd, number_of(f"spot: interruptions of {label}", rate, NotNegative) if at else 0.0)
    return offers
