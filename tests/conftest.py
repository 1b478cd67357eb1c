"""Tests see the figures on file, whatever this machine's user has calibrated."""

import gc
import os
from collections import Counter

import pytest
from hypothesis import settings

from recsys_lab.config.calibrated import VARIABLE

os.environ[VARIABLE] = "none"
#: OpenMP's threads sleep while they wait. By default they spin, and several test processes share two cores:
#: spinning took two thirds of the CPU time of tests/models, tests/simulate and tests/kernels. Read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
#: An example may take its time: other processes share the cores.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
#: Folders whose files hold few tests and run for minutes: they start processes.
STARTING = ("end_to_end", "experiments", "package", "executor", "schemes", "torchrec_plans", "launchers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker begins one when the others are done; then those with most tests."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.parent.name not in STARTING, -tests[item.path]))


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
