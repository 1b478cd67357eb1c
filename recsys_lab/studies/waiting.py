"""What is seen while studies run: a bar in a terminal. Where there is none, a line now and then. Both on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

#: Of a study that nobody has timed yet, and of a line where there is no terminal.
UNKNOWN_S, EVERY_S = 20.0, 30.0
FIRST_S = 5.0


class Waiting:
    """Context of a batch. `studies`: those to run, in order, each with the seconds that it took before, if that is known."""

    def __init__(self, studies: Sequence[tuple[str, float | None]]):
        self.studies = [(name, seconds or UNKNOWN_S) for name, seconds in studies]
        self.number, self.next_line_s = 0, FIRST_S
        self.spent_s, self.usual_s = 0.0, 0.0  # of those that have ended: how busy the machine is
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), TimeElapsedColumn())
        self.is_terminal = sys.stderr.isatty()
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not self.is_terminal or not studies)
        self.task = self.bar.add_task("studies", total=sum(seconds for _, seconds in self.studies) or None, left="")

    def __enter__(self) -> Waiting:
        self.bar.start()
        if self.studies:
            self.tick(0.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def tick(self, seconds: float) -> None:
        """The one that runs has run so long."""
        name, usual = self.studies[self.number]
        pace = self.spent_s / self.usual_s if self.usual_s else 1.0
        remaining_s = max(pace * usual - seconds, 0.0) + pace * sum(usual for _, usual in self.studies[self.number + 1 :])
        words = f"{name} ({self.number + 1} of {len(self.studies)})"
        completed_s = sum(usual for _, usual in self.studies[: self.number]) + min(seconds, usual)
        self.bar.update(self.task, completed=completed_s, description=words, left=f"about {_minutes(remaining_s)} left,")
        if not self.is_terminal and seconds >= self.next_line_s:
            print(
                f"{words}: {seconds:.0f} s of about {usual:.0f}; all of them about {_minutes(remaining_s)} more",
                file=sys.stderr,
                flush=True,
            )
            self.next_line_s += EVERY_S

    def ended(self, seconds: float) -> None:
        """It took so long. The next one runs."""
        self.spent_s, self.usual_s = self.spent_s + seconds, self.usual_s + self.studies[self.number][1]
        self.number, self.next_line_s = self.number + 1, FIRST_S


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
