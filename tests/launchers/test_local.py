"""Local ranks: answers come home, failures are told apart, and nothing stays behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from launchers import processes
from launchers.local import launch, shared_cores
from recsys_lab.errors import RankLost, UserError


def answer(word: str) -> tuple[str, str, str]:
    return word, os.environ["RANK"], os.environ["LOCAL_WORLD_SIZE"]


def mistake() -> None:
    if os.environ["RANK"] == "1":
        raise UserError("too few", where="here", given=1, allowed="2 or more")
    time.sleep(60)


def bug() -> None:
    if os.environ["RANK"] == "0":
        raise ZeroDivisionError("ours")
    time.sleep(60)


def unread() -> None:
    if os.environ["RANK"] == "0":
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    time.sleep(60)


def speaks_to_nobody() -> str:
    """As a rank does whose stderr was a pipe, once its reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    for _ in range(2):
        print("step 1", file=sys.stderr, flush=True)
    return "trained on"


def unreachable() -> None:
    raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Broken pipe")


def full() -> None:
    if os.environ["RANK"] == "1":
        raise OSError(errno.ENOSPC, "No space left on device", "/rows")
    time.sleep(60)


def dies(notes: str) -> None:
    Path(notes, os.environ["RANK"]).write_text(str(os.getpid()))
    if os.environ["RANK"] == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def run(work, folder: Path, **arguments):
    return launch(work, arguments, folder, hosts=2, ranks_per_host=2, threads_per_rank=1, timeout_s=30)


def test_rank_zero_answers(tmp_path):
    assert run(answer, tmp_path, word="hello") == ("hello", "0", "2")


@pytest.mark.parametrize(
    ("ranks", "threads", "cores", "expected"),
    [
        (4, 1, {0, 1}, ["0", "1", "0", "1"]),
        (4, 2, {1, 3, 5, 7}, ["1,3", "5,7", "1,3", "5,7"]),
        (2, 1, {0, 1}, ["any", "any"]),  # the system does it as well
        (3, 1, {0, 1}, ["any"] * 3),  # one core would have more than the other
        (1, 4, {0, 1}, ["any"]),
    ],
)
def test_ranks_share_cores_evenly_where_there_are_too_few(monkeypatch, ranks, threads, cores, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert shared_cores(ranks, threads) == expected


def test_a_ranks_mistake_is_the_users(tmp_path):
    with pytest.raises(UserError, match="here: too few; given 1; allowed: 2 or more"):
        run(mistake, tmp_path)


def test_a_full_disk_of_a_rank_is_the_users(tmp_path):
    with pytest.raises(UserError, match="^/rows: cannot write: No space left on device"):
        run(full, tmp_path)


def test_a_ranks_bug_comes_with_its_traceback(tmp_path):
    with pytest.raises(RuntimeError, match="rank 0 failed(.|\n)*ZeroDivisionError: ours"):
        run(bug, tmp_path)


def test_a_stream_that_nobody_reads_is_no_lost_rank(tmp_path):
    """gloo says of a lost peer in a RuntimeError what the system says of a closed stderr."""
    with pytest.raises(RuntimeError, match="rank 0 failed") as error:
        run(unread, tmp_path)
    assert "BrokenPipeError" in str(error.value)
    with pytest.raises(RankLost):
        run(unreachable, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "NCCL error in: NCCLUtils.hpp:317, remote process exited or there was a network error, NCCL version 2.28.8",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "ncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer host<50260>",
        "NCCL communicator was aborted on rank 1.",
    ],
)
def test_nccls_words_for_a_lost_peer_are_known(text):
    assert processes.is_lost_peer(text, RuntimeError(text))


def test_gloos_advice_is_left_out():
    told = "Traceback\nRead error [127.0.0.1]:1717: Connection reset by peer. This is typically caused by a remote worker hanging. GLHF!"
    assert processes.last_line(told) == "Read error [127.0.0.1]:1717: Connection reset by peer"


def test_a_rank_whose_words_nobody_reads_goes_on(tmp_path):
    assert run(speaks_to_nobody, tmp_path) == "trained on"


def test_how_a_rank_ended_is_waited_for(tmp_path):
    """A busy machine closes a killed rank's files seconds before it tells how the rank ended."""
    mine, of_rank = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    process.start()
    of_rank.close()
    threading.Timer(processes.GRACE_S + 1, process.kill).start()
    with pytest.raises(RankLost, match="rank 0 on host 0 was lost .killed by SIGKILL"):
        processes._collect([process], [mine], 1, tmp_path)


def test_a_signal_without_a_name_has_its_number():
    assert processes.how_it_ended(-40) == "killed by signal 40" and processes.how_it_ended(-15) == "killed by SIGTERM"


def test_a_rank_that_is_killed_within_its_answer_is_named(tmp_path):
    mine, of_rank = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    process.start()
    os.kill(process.pid or 0, signal.SIGKILL)
    os.write(of_rank.fileno(), struct.pack("!i", 1000) + b"the beginning")
    of_rank.close()
    with pytest.raises(RankLost, match="rank 0 on host 0 was lost .killed by SIGKILL"):
        processes._collect([process], [mine], 1, tmp_path)


def test_a_lost_rank_is_named_and_the_others_end(tmp_path):
    began = time.monotonic()
    with pytest.raises(RankLost, match="rank 2 on host 1 was lost .killed by SIGKILL.*resume="):
        run(dies, tmp_path, notes=str(tmp_path))
    assert time.monotonic() - began < 30
    for rank in range(4):
        note = tmp_path / str(rank)
        if note.exists():
            with pytest.raises(ProcessLookupError):
                os.kill(int(note.read_text()), 0)
