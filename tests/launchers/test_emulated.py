"""The emulated network: hosts apart, links counted, and nothing left behind, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launchers import agent, processes
from launchers.emulated.namespaces import Namespaces
from launchers.emulated.network import DEVICE, Links, links_of, network
from recsys_lab.errors import RankLost, UserError

RATE_GB_S = 0.05
PORT = 29500


def _allowed() -> bool:
    try:
        with Namespaces(1):
            return True
    except UserError:
        return False


pytestmark = pytest.mark.skipif(not _allowed(), reason="this machine gives no network namespaces: run as root or allow user namespaces")


def exchange(megabytes: int) -> tuple[int, float]:
    """An all-to-all of that many MB a rank; the bytes that this rank's host sent over its link meanwhile, and the sum received."""
    import torch
    import torch.distributed as dist

    from recsys_lab.train.links import LinkCounter

    dist.init_process_group("gloo")
    links = LinkCounter(DEVICE)
    given = torch.full((megabytes * 250_000,), float(dist.get_rank() + 1))
    taken = torch.empty_like(given)
    dist.barrier()
    links.mark()
    dist.all_to_all_single(taken, given)
    links.mark()
    return links.marks[1] - links.marks[0], float(taken.sum())


def ends(how: str, notes: str) -> None:
    """All-reduces for a minute; one rank dies or stops in the middle."""
    import torch
    import torch.distributed as dist

    from recsys_lab.train.process_group import start_process_group

    start_process_group()
    rank, began = dist.get_rank(), time.monotonic()
    Path(notes, f"pid{rank}").write_text(str(os.getpid()))
    while time.monotonic() - began < 60:
        dist.all_reduce(torch.ones(1000))
        if rank == 3 and time.monotonic() - began > 1:
            os.kill(os.getpid(), {"dies": signal.SIGKILL, "hangs": signal.SIGSTOP}.get(how, signal.SIGCONT))
        Path(notes, "runs").touch()


def run(work, folder: Path, net, hosts: int = 2, ranks_per_host: int = 2, timeout_s: float = 4.0, **arguments):
    from functools import partial

    from launchers.emulated.launch import _enter

    world = hosts * ranks_per_host
    ranks = [
        processes.rank_variables(rank, world, ranks_per_host, net.address(0), PORT, 1, timeout_s) | {"GLOO_SOCKET_IFNAME": DEVICE}
        for rank in range(world)
    ]
    return agent.run(work, arguments, folder, ranks, enter=partial(_enter, net.hosts))


def test_what_crosses_hosts_is_on_the_links_and_nothing_else_is(tmp_path):
    with network(2, Links(RATE_GB_S)) as net:
        sent, received = run(exchange, tmp_path, net, megabytes=4)
    assert received == 250_000 * (1 + 2 + 3 + 4)
    across = 2 * 4e6 / 2  # of each of the host's two ranks' 4 MB, half goes to the other host
    assert across < sent < 1.05 * across


@pytest.mark.parametrize(("how", "told"), [("dies", "rank 3 on host 1 was lost .killed by SIGKILL"), ("hangs", "rank 3 on host 1 hangs")])
def test_a_rank_that_dies_or_hangs_is_named(tmp_path, how, told):
    with network(2, Links(RATE_GB_S)) as net, pytest.raises(RankLost, match=f"{told}.*resume="):
        run(ends, tmp_path, net, how=how, notes=str(tmp_path))
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_a_host_that_is_cut_off_is_named(tmp_path):
    import threading

    with network(3, Links(RATE_GB_S)) as net:

        def cut() -> None:
            while not (tmp_path / "runs").exists():
                time.sleep(0.1)
            net.cut(1)

        thread = threading.Thread(target=cut)
        thread.start()
        with pytest.raises(RankLost, match="host 1 .ranks 1 to 1. cannot be reached.*resume="):
            run(ends, tmp_path, net, hosts=3, ranks_per_host=1, how="stays", notes=str(tmp_path))
        thread.join()
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_nothing_is_left_of_a_launcher_that_is_killed():
    code = (
        "import time\n"
        "from launchers.emulated.network import Links, network\n"
        f"with network(2, Links({RATE_GB_S})) as net:\n"
        "    print(*[n.pid for n in [*net.hosts, net.switch]], flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        holders = [int(pid) for pid in launcher.stdout.readline().split()]
        assert len(holders) == 3 and all(alive(pid) for pid in holders)
        launcher.kill()
    until = time.monotonic() + 5
    while any(alive(pid) for pid in holders) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in holders if alive(pid)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"host_gb_s": 45.0}, "launcher.link_gb_s: this machine cannot emulate a link of that rate; given 45 GB/s"),
        ({"host_gb_s": 0.05, "racks": 3}, "cluster.hosts_per_leaf: so many racks cannot be emulated; given 3 racks; allowed: 1, 2"),
    ],
)
def test_links_that_cannot_be_are_refused(given, told):
    with pytest.raises(UserError, match=told):
        Links(**given)


def test_what_leaves_a_rack_goes_through_its_trunk(tmp_path):
    """Two racks of one host, whose trunk is five times slower than their links."""
    with network(2, links_of(2, RATE_GB_S, hosts_per_leaf=1, leaf_oversubscription=5.0)) as net:
        sent, _ = run(exchange, tmp_path, net, megabytes=2, ranks_per_host=1)
        trunk = net.switch.run(["cat", "/proc/net/dev"])
        shaped = net.switch.run(["tc", "qdisc", "show", "dev", "t0"])
    carried = next(int(line.split()[9]) for line in trunk.splitlines() if line.strip().startswith("t0:"))
    assert 1e6 < sent < 1.05e6 and carried > 1e6
    assert "tbf" in shaped and "rate 80Mbit" in shaped


def test_a_clusters_leaves_are_racks():
    assert links_of(4, 0.05, 0, 1.0) == Links(0.05) == links_of(4, 0.05, 4, 2.0)
    assert links_of(4, 0.05, 2, 4.0) == Links(0.05, 2, 0.025)


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("pid*")]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
