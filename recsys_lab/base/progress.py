"""What is shown while something of known size runs: a bar in a terminal, else a line every ten seconds. Both on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

#: Shorter work shows no bar.
BAR_AFTER_S = 3.0
EVERY_S = 10.0


class Progress:
    """A context of the work. `what`: is being done. `unit`: of `total`, such as rows."""

    def __init__(self, total: float, what: str, unit: str):
        self.total, self.what, self.unit = total, what, unit
        self.done, self.begun_s, self.next_line_s = 0.0, time.monotonic(), EVERY_S
        self.bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, more: float = 1) -> None:
        """So much more is done."""
        self.advance_to(self.done + more)

    def advance_to(self, done: float, total: float | None = None, note: str = "") -> None:
        """So much of `total` is done. `note`: what is shown beside that."""
        self.done, self.total = done, self.total if total is None else total
        spent_s = time.monotonic() - self.begun_s
        if sys.stderr.isatty():
            if self.bar is None and spent_s >= BAR_AFTER_S:
                self.bar = self._start_bar()
            if self.bar is not None:
                self.bar.update(self.bar.task_ids[0], completed=done, total=self.total or None, description=self.what, note=note)
        elif spent_s >= self.next_line_s:
            share = done / self.total if self.total else 0.0
            line = f"{self.what}: {done:,.0f} of {self.total:,.0f} {self.unit} ({share:.0%}) after {spent_s:.0f} s"
            print(f"{line}, {note}" if note else line, file=sys.stderr, flush=True)
            self.next_line_s = spent_s + EVERY_S

    def _start_bar(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        bar = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2)
        bar.add_task(self.what, total=self.total or None, note="")
        bar.start()
        return bar
