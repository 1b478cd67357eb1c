"""What is seen while studies run: the seconds that they took before say how far they are."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.base.progress import Progress

#: Of a study that nobody has timed yet.
UNKNOWN_S = 20.0


class Waiting(Progress):
    """Context of a batch. `studies`: those to run, in order, each with the seconds that it took before, if that is known."""

    def __init__(self, studies: Sequence[tuple[str, float | None]]):
        self.studies = [(name, seconds or UNKNOWN_S) for name, seconds in studies]
        self.number = 0
        self.spent_s, self.usual_s = 0.0, 0.0  # of those that have ended: how busy the machine is
        super().__init__(sum(seconds for _, seconds in self.studies), "studies", "s")

    def tick(self, seconds: float) -> None:
        """The one that runs has run so long."""
        name, usual = self.studies[self.number]
        pace = self.spent_s / self.usual_s if self.usual_s else 1.0
        remaining_s = max(pace * usual - seconds, 0.0) + pace * sum(usual for _, usual in self.studies[self.number + 1 :])
        self.what = f"{name} ({self.number + 1} of {len(self.studies)})"
        self.advance_to(self.usual_s + min(seconds, usual), note=f"about {_minutes(remaining_s)} left")

    def ended(self, seconds: float) -> None:
        """It took so long. The next one runs."""
        self.spent_s, self.usual_s = self.spent_s + seconds, self.usual_s + self.studies[self.number][1]
        self.number += 1


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
