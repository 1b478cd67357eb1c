"""Ray Train's side of launcher=ray: how its workers become ranks. Imports Ray, as launchers/ray.py must not before it has asked for it."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.backend import Backend
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.callback import UserCallback
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from launchers import processes
from recsys_lab.errors import UserError
from recsys_lab.train import FROM_CHECKPOINT

ROOT = Path(__file__).resolve().parents[1]
FAILED = TrainingFailedError


@dataclass(frozen=True)
class Ranks:
    """How ranks are grouped. `own`: on a Ray of this machine's own, whose ranks are as if on `hosts` machines."""

    hosts: int
    ranks_per_host: int
    threads_per_rank: int
    timeout_s: float
    folder: Path
    own: bool


class Broken(Exception):
    """A bug of ours on a rank, as text: its traceback."""


def trainer(work: Callable[..., Any], arguments: dict, ranks: Ranks, cpus_per_rank: int, gpu: bool, max_failures: int) -> TorchTrainer:
    """Runs `work(**arguments)` on every rank, and again from the newest checkpoint up to `max_failures` times where one is lost."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return TorchTrainer(
        _rank,
        train_loop_config={"work": work, "arguments": arguments, "ranks": ranks},
        torch_config=RecordedTorch(),
        scaling_config=ray.train.ScalingConfig(
            num_workers=ranks.hosts * ranks.ranks_per_host,
            use_gpu=gpu,
            resources_per_worker={"CPU": cpus_per_rank} | ({"GPU": 1} if gpu else {}),
        ),
        run_config=ray.train.RunConfig(
            name="ray",
            storage_path=str(ranks.folder),
            failure_config=ray.train.FailureConfig(max_failures=max_failures, controller_failure_limit=0),
            callbacks=[EndOnMistake()],
            worker_runtime_env={"env_vars": {"PYTHONPATH": path, FROM_CHECKPOINT: "1"}},
        ),
    )


class RecordedTorch(TorchConfig):
    """Ray Train's Torch, but that the ranks' process group is our own, whose collectives are recorded."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _Rendezvous


class _Rendezvous(Backend):
    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        address, port = worker_group.execute_single(0, _listen)
        worker_group.execute(_set_rendezvous, address, port)


def _listen() -> tuple[str, int]:
    """Where the ranks meet. Rank 0 listens there from now on, on the address by which Ray knows its host and on no other."""
    address = ray.util.get_node_ip_address()
    listener = socket.create_server((address, 0), backlog=128, family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    port = listener.getsockname()[1]
    os.environ["RECSYS_LAB_LISTENER"] = str(listener.detach())
    return address, port


def _set_rendezvous(address: str, port: int) -> None:
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))


def _rank(config: dict[str, Any]) -> Any:
    """The life of a rank, in a thread of Ray's worker."""
    import torch

    ranks, context = config["ranks"], ray.train.get_context()
    rank, world, ranks_here = context.get_world_rank(), context.get_world_size(), context.get_local_world_size()
    master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    os.environ.update(processes.rank_variables(rank, world, ranks.ranks_per_host, *master, ranks.threads_per_rank, ranks.timeout_s))
    if ranks.own:
        os.environ.update(processes.ON_THIS_MACHINE)
    _write_to(ranks.folder / "logs" / f"rank{rank}.log")
    torch.set_num_threads(ranks.threads_per_rank)
    if not ranks.own and ranks_here != ranks.ranks_per_host:
        raise UserError(
            "Ray placed other ranks on a host than the launcher says",
            where="launcher.ranks_per_host",
            given=f"{ranks_here} on rank {rank}'s host",
            allowed=str(ranks.ranks_per_host),
            remedy="give ranks so many CPUs that a host takes no more of them: launcher.cpus_per_rank",
        )
    try:
        return config["work"](**config["arguments"])
    except UserError:
        raise
    except Exception as error:
        text = traceback.format_exc()
        print(text, flush=True)
        if processes.is_lost_peer(text, error):
            raise ConnectionError(processes.last_line(text)) from None
        raise Broken(text) from error


def _write_to(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


class EndOnMistake(UserCallback):
    """What no further attempt would mend ends the run at once: Ray raises what a callback raises."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            if isinstance(cause := _inner(error), UserError | Broken):
                raise cause


def causes(error: Exception) -> dict[int, BaseException]:
    """What ranks raised, by rank; a rank that died has Ray's words for it."""
    if isinstance(error, WorkerGroupError):
        return {rank: _inner(cause) for rank, cause in error.worker_failures.items()}
    if isinstance(error, ControllerError) and isinstance(cause := _inner(error.controller_failure), UserError | Broken):
        return {0: cause}
    return {}


def _inner(error: BaseException) -> BaseException:
    """The error within Ray's wrapping of it."""
    while (inner := getattr(error, "_base_exc", None) or getattr(error, "cause", None)) is not None and inner is not error:
        error = inner
    return error
