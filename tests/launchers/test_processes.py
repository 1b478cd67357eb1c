"""What every process that starts ranks has in its environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from launchers.processes import SPINS


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_threads_that_wait_sleep_soon_unless_the_user_says_otherwise(own: dict[str, str], expected: str) -> None:
    others = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    asked = "import sys, run, os; assert 'torch' not in sys.modules; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run([sys.executable, "-c", asked], env=others | own, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(("own", "expected"), [({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")])
def test_threads_of_numpy_sleep_soon_as_well(own: dict[str, str], expected: str) -> None:
    others = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    asked = "import sys; import launchers.processes, os; assert 'numpy' not in sys.modules; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    done = subprocess.run([sys.executable, "-c", asked], env=others | own, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
