"""Runs that are killed and go on: twenty in the long suite, as many as you like by hand."""

from __future__ import annotations

import json

import pytest

from experiments.reliability import kills


def killed(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, int], str]:
    """The exit code, the counts, and what was said of each run that was lost."""
    code = kills.main(options)
    output = capsys.readouterr()
    return code, json.loads(output.out), output.err


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_twenty_kills_of_every_kind_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {"kills": 20, "lost": 0, "other_bits": 0, "left_behind": 0}
    assert killed(capsys, "--kills", "20", "--seed", "2") == (0, expected, "")


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_twenty_kills_of_runs_with_rows_in_files_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {"kills": 20, "lost": 0, "other_bits": 0, "left_behind": 0}
    assert killed(capsys, "--kills", "20", "--seed", "3", "--kinds", "store") == (0, expected, "")
