"""How far something is: a bar in a terminal that goes when the work ends, else a line every ten seconds."""

from __future__ import annotations

import io
import sys
import time

import pytest

from recsys_lab.base.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_line_every_ten_seconds(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2_000_000, "reading x.csv", "B") as shown:
        for clock[0] in (101.0, 110.0, 111.0, 125.0):
            shown.update(500_000)
    assert capsys.readouterr().err.splitlines() == [
        "reading x.csv: 1,000,000 of 2,000,000 B (50%) after 10 s",
        "reading x.csv: 2,000,000 of 2,000,000 B (100%) after 25 s",
    ]


def test_a_bar_in_a_terminal_once_the_work_takes_some_seconds(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress(0, "pricing", "combinations") as shown:
        shown.advance_to(1, 4)
        assert terminal.getvalue() == ""
        clock[0] += 5.0
        shown.advance_to(3, 4, "2 examples/s")
    assert "pricing" in terminal.getvalue() and "75%" in terminal.getvalue() and "2 examples/s" in terminal.getvalue()
