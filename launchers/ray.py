"""Ray: its workers are the ranks. A Ray of this machine's own is started where no cluster is named, and ends with the run.

Ray Train starts the workers and restarts all of them when one is lost. They resume from the newest checkpoint in the run folder.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from launchers import processes
from recsys_lab.base.packages import Package, needs
from recsys_lab.base.ranges import Count, CountFromZero, Hosts, RanksPerHost, Threads, Timeout, text_like
from recsys_lab.errors import UserError

ADDRESS = text_like(r"auto|[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}", 255, "auto, or the head's HOST:PORT")
#: The folder in the run folder in which Ray Train keeps what it knows of the run, until the run ends.
STORAGE = "ray"
#: A Ray of our own. It listens on loopback alone, as it does on systems without clusters, and wants a token that nobody else knows. Nobody
#: hears of it. Ray reads these when it is imported.
OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
#: For what ranks exchange through Ray: nothing but their end, so it may be small.
OBJECT_STORE_BYTES = 80 * 2**20
REACH_S = 5.0
RAY = Package("ray", "ray", "launcher=local")


@needs(RAY)
def launch(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    address: Annotated[str, ADDRESS] | None = None,
    cpus_per_rank: Count = 1,
    max_failures: CountFromZero = 3,
    threads_per_rank: Threads = 1,
    timeout_s: Timeout = 600.0,
) -> Any:
    """Runs `work(**arguments)` on every rank, as workers of Ray Train.

    Args:
        work, arguments, folder, hosts, ranks_per_host, threads_per_rank, timeout_s: those of `launchers.local.launch`.
        address: of Ray's head, HOST:PORT or auto; None starts a Ray here.
        cpus_per_rank: that Ray reserves.
        max_failures: how often lost ranks are restarted.

    Returns:
        What rank 0 returned.

    Raises:
        UserError: where Ray is not installed, does not answer or is too small; a rank's own.
        RankLost: where ranks were lost more often than `max_failures`.
        RuntimeError: with the rank's traceback, for our bugs.
    """
    folder = folder.resolve()
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with _ray(address, hosts * ranks_per_host * cpus_per_rank) as ray:
        from launchers import ray_ranks

        gpus = int(ray.cluster_resources().get("GPU", 0))
        _check_size(ray, "CPU", hosts * ranks_per_host * cpus_per_rank)
        if gpus:
            _check_size(ray, "GPU", hosts * ranks_per_host)
        ranks = ray_ranks.Ranks(hosts, ranks_per_host, threads_per_rank, timeout_s, folder, own=address is None)
        trainer = ray_ranks.trainer(work, arguments, ranks, cpus_per_rank, bool(gpus), max_failures)
        try:
            return _in_a_thread(trainer.fit).return_value
        except ray_ranks.FAILED as error:
            raise _what_it_was(error, ray_ranks.causes(error), ray_ranks.Broken, folder) from None
        finally:
            shutil.rmtree(folder / STORAGE, ignore_errors=True)


@contextmanager
def _ray(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, connected to the cluster at `address` or to one of our own. Ours is gone after the context with its folder."""
    if address is None:
        os.environ.update(OWN)
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ModuleNotFoundError:
        raise RAY.refusal("launcher", "ray") from None
    own_folder = Path(tempfile.mkdtemp(prefix="recsys_lab-ray-", dir="/tmp")) if address is None else None  # sockets' names are short
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if own_folder is not None:
            ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, _temp_dir=str(own_folder), **quiet)
        else:
            _connect(ray, str(address), quiet)
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)  # in place of Ray's, which ends the process
        yield ray
    finally:
        ray.shutdown()
        if own_folder is not None:
            shutil.rmtree(own_folder, ignore_errors=True)


def _connect(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Raises UserError where no Ray answers at `address`."""
    remedy = "start Ray there: ray start --head; or leave launcher.address out for a Ray of the run's own"
    if address != "auto":
        host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), timeout=REACH_S).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"no Ray answers ({error})", where="launcher.address", given=address, remedy=remedy) from None
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"Ray does not let us in: {reason}", where="launcher.address", given=address, remedy=remedy) from None


def _check_size(ray: Any, kind: str, wanted: int) -> None:
    available = int(ray.cluster_resources().get(kind, 0))
    if available < wanted:
        raise UserError(
            "Ray has too few of them for the ranks",
            where="launcher",
            given=f"{available} {kind}s, where the ranks want {wanted}",
            remedy="add nodes to Ray; or fewer ranks: launcher.hosts, launcher.ranks_per_host, launcher.cpus_per_rank",
        )


def _in_a_thread(call: Callable[[], Any]) -> Any:
    """What `call` returns. Signals reach this thread: in it Ray would take Ctrl-C for itself."""
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((call(), None))
        except BaseException as error:  # raised again below, in the other thread
            ended.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    returned, error = ended[0]
    if error is not None:
        raise error
    return returned


def _what_it_was(error: Exception, causes: dict[int, BaseException], bug: type[Exception], folder: Path) -> Exception:
    """A rank's own mistake first, then our bug, then a lost rank, as launchers/processes.py has it."""
    for cause in causes.values():
        if isinstance(cause, UserError):
            return cause
    for rank, cause in causes.items():
        if isinstance(cause, bug):
            return RuntimeError(f"rank {rank} failed:\n{cause}")
    if not causes:
        return RuntimeError(f"Ray failed: {error}")
    rank, cause = min(causes.items(), key=lambda item: processes.is_lost_peer(str(item[1])))  # who died before who noticed
    reason = " ".join(str(cause).split()) or type(cause).__name__
    return processes.lost(f"rank {rank} was lost ({reason[:300]})", folder)
