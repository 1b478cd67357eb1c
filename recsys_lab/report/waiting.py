"""What is shown while something of known size runs: a bar in a terminal, else a line every ten seconds. Both on stderr."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

EVERY_S = 10.0


class Bar:
    """Context of the work. `what` is done, such as "combinations priced"."""

    def __init__(self, what: str):
        self.what, self.begun_s = what, time.monotonic()
        self.next_line_s = EVERY_S
        self.is_terminal = sys.stderr.isatty()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not self.is_terminal)
        self.task = self.bar.add_task(what, total=None)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, done: int, of: int, more: str = "") -> None:
        """So many are done. `more`: what a line says beside that."""
        self.bar.update(self.task, completed=done, total=of)
        spent_s = time.monotonic() - self.begun_s
        if not self.is_terminal and spent_s >= self.next_line_s:
            print(f"{done} of {of} {self.what} in {spent_s:.0f} s{more}", file=sys.stderr, flush=True)
            self.next_line_s = spent_s + EVERY_S
