"""launcher=ray on a real Ray: the bits of launcher=local, also after a kill, nobody else can connect, and nothing is left behind."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.ecosystem.mlflow_server import a_port
from tests.ecosystem.packages import wants
from tests.end_to_end.lines import ROOT, SMALL, bits, environment, last_checkpoint, line, result

pytestmark = [wants("ray"), pytest.mark.timeout(900)]
WORDS = ("model=dcn", "mode=train", *SMALL, "data.rows_train=12000")
TWO, ONE = (("launcher.hosts=1", f"launcher.ranks_per_host={ranks}") for ranks in (2, 1))
WORKER = "RayTrainWorker"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run on two processes of launcher=local."""
    folder = tmp_path_factory.mktemp("local") / "run"
    done = line(*WORDS, *TWO, "launcher=local", f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return folder


class Begun:
    """`python run.py WORDS launcher=ray`, begun; the processes below it that were seen, and where they listened."""

    def __init__(self, folder: Path, cache: Path, *words: str):
        self.folder, self.addresses = folder, set[str]()
        self.seen, self.workers = set[psutil.Process](), dict[int, psutil.Process]()
        command = [sys.executable, "run.py", *WORDS, "launcher=ray", *words, f"hydra.run.dir={folder}"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.root = psutil.Process(self.process.pid)

    def look(self) -> None:
        """Notes the processes that are there, which of them are Ray Train's workers, and where all of them listen."""
        for one in [self.root, *self.root.children(recursive=True)]:
            self.seen.add(one)
            try:
                if WORKER in " ".join(one.cmdline()):
                    self.workers.setdefault(one.pid, one)
                found = one.net_connections("tcp")
            except psutil.Error:
                continue
            self.addresses |= {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}

    def until_step(self, least: int) -> None:
        until = time.monotonic() + 300
        while not list((self.folder / "checkpoints").glob("step=*")) or int(last_checkpoint(self.folder).name.split("=")[1]) < least:
            assert self.process.poll() is None and time.monotonic() < until, self.process.communicate()
            self.look()
            time.sleep(0.1)

    def end(self, within_s: float = 20) -> tuple[int, str]:
        """The exit code, and what it said; nothing of it may be left soon after that."""
        while self.process.poll() is None:
            self.look()
            time.sleep(0.2)
        said = self.process.communicate()[1]
        assert [one.cmdline() for one in psutil.wait_procs(self.seen, timeout=within_s)[1] if one.status() != psutil.STATUS_ZOMBIE] == []
        return self.process.returncode, said


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    def ours() -> set[Path]:
        return {*Path("/tmp").glob("recsys_lab-ray-*"), *Path("/tmp").glob("ray"), *Path.home().glob(".ray/*")}

    before = ours()
    yield
    assert ours() == before


def test_two_workers_leave_the_bits_of_two_local_ranks_and_listen_on_loopback(local: Path, cache: Path, tmp_path: Path) -> None:
    begun = Begun(tmp_path / "run", cache, *TWO)
    code, said = begun.end()
    assert code == 0, said
    assert bits(tmp_path / "run") == bits(local) and result(tmp_path / "run")["choices"]["launcher"] == "ray"
    assert len(begun.workers) == 2 and len(begun.seen) > 5
    assert begun.addresses and begun.addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert not (tmp_path / "run" / "ray").exists()


def test_a_worker_that_is_killed_is_started_anew_and_leaves_the_same_bits(local: Path, cache: Path, tmp_path: Path) -> None:
    begun = Begun(tmp_path / "run", cache, *TWO)
    begun.until_step(10)
    assert len(begun.workers) == 2
    next(iter(begun.workers.values())).send_signal(signal.SIGKILL)
    code, said = begun.end()
    assert code == 0, said
    assert len(begun.workers) == 4
    assert bits(tmp_path / "run") == bits(local)


def test_a_worker_lost_too_often_is_exit_code_4_and_the_run_goes_on_elsewhere(local: Path, cache: Path, tmp_path: Path) -> None:
    begun = Begun(tmp_path / "run", cache, *TWO, "launcher.max_failures=0")
    begun.until_step(10)
    next(iter(begun.workers.values())).send_signal(signal.SIGKILL)
    code, said = begun.end()
    assert code == 4, said
    assert said.count("\n") == 1 and said.startswith("error: rank ") and f"resume={tmp_path / 'run'}" in said
    done = line(f"resume={tmp_path / 'run'}", cache=cache)
    assert done.code == 0, done.err
    assert bits(tmp_path / "run") == bits(local)


def test_a_mistake_that_a_rank_finds_is_its_line_and_not_tried_again(cache: Path, tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{a_port()}"
    begun = Begun(tmp_path / "run", cache, *ONE, "logger=mlflow", f"logger.tracking_uri={uri}")
    code, said = begun.end()
    assert (code, len(begun.workers)) == (2, 1), said
    assert said.count("\n") == 1 and said.startswith(f"error: logger.tracking_uri: no MLflow server answers at {uri}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)])
def test_a_launcher_that_is_ended_takes_its_ray_along(number: signal.Signals, code: int, cache: Path, tmp_path: Path) -> None:
    begun = Begun(tmp_path / "run", cache, *ONE)
    begun.until_step(5)
    begun.process.send_signal(number)
    ended, said = begun.end(within_s=90)  # Ray's agents look now and then whether it still runs
    assert ended == code, said
    if number == signal.SIGTERM:
        assert said.startswith("ended by SIGTERM with a checkpoint of step=") and said.count("\n") == 1
    else:  # nobody was there to remove its folder
        for place in Path("/tmp").glob("recsys_lab-ray-*"):
            shutil.rmtree(place)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray of one CPU that runs already, with a token that this process has in its environment."""
    for name, value in {"AUTH_MODE": "token", "AUTH_TOKEN": secrets.token_hex(32), "ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    place, port = Path(f"/tmp/{secrets.token_hex(4)}"), a_port()
    words = [
        "start",
        "--head",
        "--block",
        "--num-cpus=1",
        "--include-dashboard=false",
        "--disable-usage-stats",
        "--node-ip-address=127.0.0.1",
    ]
    program = [sys.executable, "-m", "ray.scripts.scripts", *words, f"--port={port}", f"--temp-dir={place}"]
    started = psutil.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert started.poll() is None and time.monotonic() < until
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    assert started.poll() is None
    ended = [*started.children(recursive=True), started]
    for one in ended:
        one.kill()
    psutil.wait_procs(ended, timeout=20)
    shutil.rmtree(place)


def test_a_cluster_that_runs_already_is_used_and_left_running(head: str, cache: Path, tmp_path: Path) -> None:
    address = f"launcher.address={head}"
    assert Begun(tmp_path / "fits", cache, *ONE, address).end() == (0, "")
    assert result(tmp_path / "fits")["measured"]["world_size"] == 1
    code, said = Begun(tmp_path / "large", cache, *TWO, address).end()
    assert code == 2 and said.startswith("error: launcher: Ray has too few of them for the ranks; given 1 CPUs, where the ranks want 2; ")
    assert not (tmp_path / "large").exists()


def test_a_ray_that_is_not_there_is_one_line_and_exit_code_2(cache: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{a_port()}"
    done = line(*WORDS, "launcher=ray", f"launcher.address={address}", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert done.err.startswith("error: launcher.address: no Ray answers ") and f"given {address}" in done.err
