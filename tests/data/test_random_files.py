"""Random logs and tables from a known truth: read right, or refused with one line. Never wrong without a word.

A failure prints its draw, and `random_logs` or `random_tables` makes it again from its seed.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from recsys_lab.errors import UserError
from tests.data import random_logs, random_tables

#: At least this share is read. The others are refused, such as UTF-16 and headers of unknown names.
LEAST_READ = 0.5


def outcome(seed: int, root: Path) -> str:
    """What becomes of draw `seed`. Fails where it was read wrongly, or refused without a reason."""
    random, is_table = np.random.default_rng(seed), seed % 5 in (1, 3)
    make = random_tables.table_file if is_table else random_logs.sequences_file if seed % 50 == 0 else random_logs.log_file
    drawn = make(random, root)
    try:
        if isinstance(drawn, random_tables.Table):
            wrong = random_tables.wrong(drawn, random_tables.read(drawn))
        else:
            wrong = random_logs.wrong(drawn, random_logs.read(drawn))
    except UserError as error:
        assert drawn.may_refuse, f"draw {seed} is refused: {error}; {drawn.told}"
        return "refused"
    finally:
        shutil.rmtree(root)
    assert not wrong, f"draw {seed} is read wrongly: {wrong}; {drawn.told}"
    return "right"


def check(seeds: range, root: Path) -> None:
    seen = Counter(outcome(seed, root / str(seed)) for seed in seeds)
    assert seen["right"] >= LEAST_READ * len(seeds), seen


def test_random_files_are_read_right_or_refused(tmp_path: Path) -> None:
    check(range(60), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 3000, 250))
def test_two_thousand_random_files_are_read_right_or_refused(tmp_path: Path, first: int) -> None:
    check(range(first, first + 250), tmp_path)
