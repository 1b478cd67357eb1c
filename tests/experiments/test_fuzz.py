"""A part of the hostile cases, and the judge of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.reliability.hostile import DOCUMENTED, LIMIT_S, Case, Ended

ROOT = Path(__file__).resolve().parents[2]
LINE = "error: seed: out of range; given -1\n"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [45, pytest.param(600, marks=pytest.mark.long)])
def test_hostile_cases_end_as_the_contract_says(number: int) -> None:
    """In a process of its own: one that has not used its threads can be forked."""
    environment = {name: value for name, value in os.environ.items() if name != "HYDRA_FULL_ERROR"}
    words = ["experiments/reliability/fuzz.py", "--limit", str(number), "--verbose"]
    process = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr + process.stdout
    counts = json.loads(process.stdout)
    assert (counts["cases"], counts["tracebacks"], counts["wrongly_accepted"], counts["over_60_s"]) == (number, 0, 0, 0)


@pytest.mark.parametrize(
    ("code", "err", "verdict"),
    [
        (2, LINE, "one_line_exit_2"),
        (2, LINE + "more\n", "tracebacks"),
        (2, "", "tracebacks"),
        (2, "error: mode: no such choice\n", "tracebacks"),  # the case names the seed
        (1, "Traceback (most recent call last):\n", "tracebacks"),
        (-11, "", "tracebacks"),
        (0, "", "wrongly_accepted"),
        (4, "error: rank 1 was lost\n", "wrongly_accepted"),
        (None, "", "over_60_s"),
    ],
)
def test_how_a_case_is_judged(code: int | None, err: str, verdict: str) -> None:
    assert Ended(Case("options", "a bad seed", ("seed=-1",), named="seed"), code, "", err).verdict == verdict


def test_what_may_be_taken_or_refused() -> None:
    either = Case("data", "odd", (), DOCUMENTED)
    ends = [Ended(either, code, "", LINE if code == 2 else "").verdict for code in (0, 2, 3, 4)]
    assert ends == ["other_documented", "one_line_exit_2", "other_documented", "wrongly_accepted"] and LIMIT_S == 60
