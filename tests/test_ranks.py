"""The helper that the multi-process tests stand on."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
import torch
import torch.distributed as dist

from tests.ranks import RankFailed, run_ranks


def who_am_i(factor: int) -> tuple[int, str, str, int]:
    total = torch.tensor(dist.get_rank() * factor)
    dist.all_reduce(total)
    return os.getpid(), os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], int(total)


def fail_on_two() -> None:
    if dist.get_rank() == 2:
        raise KeyError("this one")
    dist.barrier()


def sleep_on_one() -> None:
    time.sleep(60 if dist.get_rank() == 1 else 0)


def die_on_one() -> None:
    if dist.get_rank() == 1:
        os._exit(7)


def test_values_come_back_in_rank_order_and_no_process_is_left() -> None:
    answers = run_ranks(who_am_i, 2, 2, 10)
    assert [answer[1:] for answer in answers] == [("0", "2", 60), ("1", "2", 60), ("0", "2", 60), ("1", "2", 60)]
    for pid, *_ in answers:
        assert subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode == 1


def test_the_failing_rank_is_named_with_its_traceback() -> None:
    with pytest.raises(RankFailed, match=r"(?s)rank 2 failed.*fail_on_two.*KeyError: 'this one'"):
        run_ranks(fail_on_two, 2, 2)


def test_a_rank_that_hangs_or_dies_ends_the_run() -> None:
    begin = time.monotonic()
    with pytest.raises(RankFailed, match="did not end in time|Timed out"):
        run_ranks(sleep_on_one, 1, 2, timeout_s=4)
    with pytest.raises(RankFailed, match="rank 1 failed\nthe process died"):
        run_ranks(die_on_one, 1, 2, timeout_s=20)
    assert time.monotonic() - begin < 30
