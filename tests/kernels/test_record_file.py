"""Records of a file, written and read in batches, beside an array that holds the same records."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest

from recsys_lab.kernels.row_cache import read_records, write_records

PLACES = 5_000


@pytest.mark.parametrize("size", [4, 260, 1_365, 4_095, 4_096, 6_000], ids=str)  # of a record; a page has 4,096 bytes
@pytest.mark.parametrize("share", [0.002, 0.1, 0.5, 1.0], ids=str)  # of the places, written at once
def test_what_lies_between_records_stays(share: float, size: int) -> None:
    """Records less than a page apart are written as one request."""
    random = np.random.default_rng(size)
    expected = np.zeros((PLACES, size), np.uint8)
    with tempfile.TemporaryFile(buffering=0) as file:
        file.truncate(PLACES * size)
        for _ in range(5):
            places = np.flatnonzero(random.random(PLACES) < share).astype(np.int64)
            expected[places] = random.integers(0, 256, (len(places), size), dtype=np.uint8)
            write_records(file.fileno(), places, expected[places])
        found = np.empty_like(expected)
        read_records(file.fileno(), np.arange(PLACES), found)
        np.testing.assert_array_equal(found, expected)
        some = np.flatnonzero(random.random(PLACES) < 0.1).astype(np.int64)
        found = np.empty((len(some), size), np.uint8)
        read_records(file.fileno(), some, found)
        np.testing.assert_array_equal(found, expected[some])


def test_what_lies_between_records_behind_the_end_of_a_file_is_zero() -> None:
    """As the file system has it, whatever was written by the same threads before."""
    with tempfile.TemporaryFile(buffering=0) as file:
        write_records(file.fileno(), np.arange(1_000), np.full((1_000, 100), 7, np.uint8))
        file.truncate(0)
        write_records(file.fileno(), np.array([0, 5, 9]), np.full((3, 100), 3, np.uint8))
        found = np.empty((10, 100), np.uint8)
        read_records(file.fileno(), np.arange(10), found)
        assert found[:, 0].tolist() == [3, 0, 0, 0, 0, 3, 0, 0, 0, 3]
        with pytest.raises(EOFError):
            read_records(file.fileno(), np.array([9, 10]), np.empty((2, 100), np.uint8))
