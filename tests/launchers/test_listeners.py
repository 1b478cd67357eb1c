"""A run on this machine listens to nobody else: every listening socket of its processes is bound to the loopback interface."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from launchers import processes
from launchers.local import launch

LOOPBACK_6 = "00000000000000000000000001000000"  # ::1, as /proc/net writes it


def listening(pids: Iterable[int]) -> dict[str, int]:
    """{address as /proc/net/tcp writes it: how many} of the sockets on which the processes `pids` listen."""
    held = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                held.add(os.readlink(handle))
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in held:
                address = fields[1].split(":")[0]
                found[address] = found.get(address, 0) + 1
    return found


def on_loopback(address: str) -> bool:
    return address[-2:] == "7F" if len(address) == 8 else address == LOOPBACK_6


def what_listens() -> dict[str, int]:
    """With two groups joined and used, seen by rank 0 for all the processes of the launcher."""
    import torch
    import torch.distributed as dist

    from recsys_lab.train.process_group import start_process_group

    start_process_group()
    half = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
    for group in (None, half):
        dist.all_reduce(torch.ones(10), group=group)
    dist.barrier()
    agent = psutil.Process(os.getppid())
    found = listening([agent.pid, agent.ppid(), *(p.pid for p in agent.children(recursive=True))])
    dist.barrier()
    return found


def test_a_local_run_listens_on_loopback_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")  # as a user has it for a cluster
    found = launch(what_listens, {}, tmp_path, hosts=2, ranks_per_host=2, timeout_s=60)
    assert sum(found.values()) >= 5, "the store, and each rank's pairs"
    assert all(on_loopback(address) for address in found), found


def test_the_port_of_the_rendezvous_is_held_from_the_first_moment_on() -> None:
    with processes.listen_here(4) as listener:
        address = listener.getsockname()
        assert address[0] == "127.0.0.1"
        with pytest.raises(OSError, match="Address already in use"):
            socket.create_server(address)
        with pytest.raises(OSError, match="Address already in use"):
            socket.create_server(("0.0.0.0", address[1]))


def test_an_address_of_another_interface_is_found() -> None:
    with socket.create_server(("0.0.0.0", 0)), socket.create_server(("127.0.0.1", 0)):
        found = listening([os.getpid()])
    assert found["00000000"] >= 1 and found["0100007F"] >= 1
    assert not on_loopback("00000000") and on_loopback("0100007F") and not on_loopback("0" * 32)
