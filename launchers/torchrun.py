"""Processes that torchrun started: this one is already a rank.

torchrun restarts its ranks when one is lost (`--max-restarts N`). The store of its agents outlives them, and the first attempt has left in
it where its run lies. The next one resumes there, from the newest checkpoint. The agents may keep their store to themselves
(TORCH_DISABLE_SHARE_RDZV_TCP_STORE). Then each attempt has a store of its own that begins with rank 0's process group, and nothing is left
in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from launchers.processes import is_lost_peer, last_line
from recsys_lab.base.files import override_of, pasted
from recsys_lab.base.ranges import Hosts, RanksPerHost, Threads, Timeout
from recsys_lab.errors import RankLost, UserError
from recsys_lab.units import counted, grid

#: In the store of torchrun's agents: the folder of the run or the sweep that was begun.
FOLDER = "recsys_lab/folder"
#: Set where whoever restarts torchrun means the run that lies in `hydra.run.dir`, as a Kubernetes Job does.
GOES_ON = "RECSYS_LAB_GOES_ON"
#: Launchers whose runs join the ranks that are there.
JOINS = ("launchers.torchrun.join", "launchers.slurm.join", "launchers.kubernetes.launch", "launchers.skypilot.launch")


#: Variables that are whole numbers: torchrun's and SLURM's, with what each is at least.
LEAST = {"WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0, "MASTER_PORT": 0, "SLURM_NTASKS": 0}


def is_rank() -> bool:
    """Whether torchrun (or anything that sets its variables) started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def check_variables() -> None:
    """Raises UserError for variables of torchrun that say no rank: others than whole numbers, or ones that do not fit each other."""
    numbers = {}
    for name, least in LEAST.items():
        if (text := os.environ.get(name)) is None:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
            allowed = f"a whole number, {least} or more"
            raise UserError(
                "not a variable of torchrun's", where=name, given=text or "an empty word", allowed=allowed, remedy=f"unset {name}"
            )
        numbers[name] = int(text)
    if not is_rank():
        return
    if numbers["RANK"] >= numbers["WORLD_SIZE"]:
        given = ", ".join(f"{name}={value}" for name, value in numbers.items())
        raise UserError("variables of torchrun's that do not fit each other", where="RANK", given=given, remedy="unset RANK and WORLD_SIZE")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise UserError("a variable of torchrun's is missing", where=name, remedy="start with torchrun, or unset RANK and WORLD_SIZE")


def join(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    threads_per_rank: Threads = 1,
    timeout_s: Timeout = 600.0,
) -> Any:
    """Runs `work(**arguments)` here, as the rank that the environment says.

    Raises UserError if the ranks do not fit the hosts, RankLost where another one went away.
    """
    if not is_rank():
        raise UserError(
            "no torchrun around this process",
            where="launcher",
            given="torchrun",
            remedy="start it with: torchrun --nproc_per_node N run.py ...",
        )
    import torch

    from recsys_lab.train.process_group import wait_at_most

    if hosts * ranks_per_host != int(os.environ["WORLD_SIZE"]):
        raise UserError(
            "the ranks that torchrun started are not hosts x ranks per host",
            where="launcher",
            given=f"{counted(int(os.environ['WORLD_SIZE']), 'rank')}, {grid(hosts, ranks_per_host)}",
            remedy="start as many ranks on every host",
        )
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(ranks_per_host))
    wait_at_most(timeout_s)
    torch.set_num_threads(threads_per_rank)
    try:
        return work(**arguments)
    except RuntimeError as error:
        if not is_lost_peer(str(error)):
            raise
        rank = int(os.environ["RANK"])
        raise RankLost(
            f"rank {rank} on host {rank // ranks_per_host} lost its peers ({last_line(str(error))})",
            remedy=f"torchrun --max-restarts N goes on by itself; else the same torchrun with: run.py {pasted('resume', folder)}",
        ) from None


def completed(argv: list[str]) -> list[str]:
    """`argv` with what the ranks of torchrun add to it: the launcher, and the run that an earlier attempt began. UserError."""
    check_variables()
    return going_on(with_launcher(argv))


def joined(config: DictConfig, folder: Path) -> tuple[DictConfig, Path]:
    """The config and the folder of a single run as all ranks of torchrun have them; as they are where torchrun did not start this."""
    return as_started(config), shared_folder(folder)


def is_follower() -> bool:
    """Whether this is a rank other than 0: rank 0 alone goes through Hydra and writes the run folder."""
    return is_rank() and int(os.environ["RANK"]) > 0


def with_launcher(argv: list[str]) -> list[str]:
    """`argv` with launcher=torchrun, if torchrun started this process and no launcher was chosen. A run that goes on has its own."""
    if not is_rank() or any(word.startswith(("launcher=", "resume=")) for word in argv):
        return argv
    return [*argv, "launcher=torchrun"]


def leave(code: int) -> NoReturn:
    """Ends the process; a rank at once, as gloo's threads now and then abort in what Python does at exit."""
    if is_rank():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def shared_folder(folder: Path) -> Path:
    """The run folder of rank 0, on every rank; `folder` itself where torchrun did not start this."""
    return Path(_of_first(str(folder.resolve()))) if is_rank() else folder


def going_on(argv: list[str]) -> list[str]:
    """`argv`, or what goes on with the run or the sweep that it began in an earlier attempt. Collective under torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return argv
    return _of_first(_going_on(argv) if not is_follower() else argv)


def remember(folder: Path | None) -> None:
    """Leaves for later attempts where the run or the sweep of this one lies."""
    if "TORCHELASTIC_RUN_ID" in os.environ and not is_follower() and folder is not None and _store_outlives_ranks():
        _store().set(FOLDER, str(folder.resolve()))


def as_started(config: DictConfig) -> DictConfig:
    """`config` of a resumed run, with as many hosts and ranks as torchrun has started this time. Others may have started those before."""
    if not is_rank() or not config.resume:
        return config
    config = OmegaConf.create(OmegaConf.to_container(config))
    if config.launcher._target_ not in JOINS:
        kept = {key: config.launcher[key] for key in ("threads_per_rank", "timeout_s")}
        config.launcher, config.choices.launcher = {"_target_": JOINS[0], **kept}, "torchrun"
    here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    config.launcher.hosts, config.launcher.ranks_per_host = int(os.environ["WORLD_SIZE"]) // here, here
    return config


def _going_on(argv: list[str]) -> list[str]:
    named = [word.split("=", 1)[1].strip("'\"") for word in argv if word.startswith(("hydra.run.dir=", "hydra.sweep.dir="))]
    same = _naming_code(argv)  # nobody says that the run which lies there is this one: then all words go along, and must change nothing
    if _store_outlives_ranks() and (store := _store()).check([FOLDER]):
        folder = Path(store.get(FOLDER).decode())
    elif named and GOES_ON in os.environ:
        folder = Path(os.path.realpath(named[-1]))
    elif named and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        folder, same = Path(os.path.realpath(named[-1])), [word for word in argv if not word.startswith(("hydra.run.", "overwrite="))]
    else:
        return argv
    if "-m" in argv or "--multirun" in argv:
        return [*argv, f"hydra.sweep.dir='{folder}'"]
    if (folder / "config.yaml").is_file():
        return [*same, override_of("resume", folder)]
    return [*argv, f"hydra.run.dir='{folder}'"]  # the attempt before did not come far enough to leave more than the name


def _naming_code(argv: list[str]) -> list[str]:
    """The words that say where code comes from that is not ours. A run of it resumes only where they are given again."""
    words = [word for word in argv if "_target_" in word or word.lstrip("+").startswith("hydra.searchpath=")]
    places = [at for at, word in enumerate(argv) if word in ("--config-dir", "-cd")]
    return [*words, *(part for at in places for part in argv[at : at + 2]), *(w for w in argv if w.startswith(("--config-dir=", "-cd=")))]


def _of_first(value: Any) -> Any:
    """What rank 0 gives, on every rank."""
    import torch.distributed as dist

    from recsys_lab.train.process_group import start_process_group

    start_process_group()
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _store_outlives_ranks() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "True") != "False"


def _store() -> Any:
    """Of torchrun's agents."""
    import torch.distributed as dist

    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
