"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, BROKEN = "ok", "warning", "broken"


@dataclass(frozen=True)
class Row:
    """`found` is a fact; `remedy` says what to do, and is there exactly when `state` is not ok.

    warning: training works, but something is slower, older or absent. broken: training on this machine cannot be relied on.
    """

    area: str
    name: str
    state: str
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        assert self.state in (OK, WARNING, BROKEN), self.state
        assert (self.state == OK) == (not self.remedy), self
