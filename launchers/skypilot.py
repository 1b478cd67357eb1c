"""SkyPilot: a task beside the run, for `sky jobs launch`; on its nodes torchrun starts the ranks, and the same launcher joins them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import Strict

from launchers import manifest, torchrun
from launchers.kubernetes import IMAGE, INTERFACE, LABEL, PATH
from recsys_lab.base.paths import ROOT
from recsys_lab.base.ranges import CountFromZero, Hosts, Positive, RanksPerHost, Threads, Timeout, text_like
from recsys_lab.errors import UserError
from recsys_lab.units import counted

FILE = "skypilot.yaml"
ACCELERATOR = text_like(r"[A-Za-z0-9][A-Za-z0-9_.-]*", 63, "a name of `sky gpus list`, such as H100")
INFRA = text_like(r"[a-z0-9*]+(/[A-Za-z0-9_.*-]+){0,3}", 255, "where to run, such as k8s or aws/us-east-1")
VARIABLE = text_like(r"[A-Za-z_][A-Za-z0-9_]*", 255, "a variable of this shell, such as WANDB_API_KEY")
COMMAND = text_like(r"(?=.*\S)[^\x00]*", 4096, "a command of the shell")


def launch(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    device_kind: Literal["cuda", "cpu"],
    accelerator: Annotated[str, ACCELERATOR] | None = None,
    volume: Annotated[str, LABEL] | None = None,
    mount: Annotated[str, PATH] = "/mnt/runs",
    data_volume: Annotated[str, LABEL] | None = None,
    data_mount: Annotated[str, PATH] = "/mnt/data",
    secrets: list[Annotated[str, VARIABLE]] | None = None,
    infra: Annotated[str, INFRA] | None = None,
    use_spot: bool = False,
    network_tier: Literal["standard", "best"] | None = None,
    image: Annotated[str, IMAGE] | None = None,
    setup: Annotated[str, COMMAND] = "make env",
    cpus_per_rank: Threads = 8,
    host_memory_gb: Positive | None = None,
    max_restarts: CountFromZero = 3,
    port: Annotated[int, Strict(), Interval(ge=1024, le=65535)] = 29500,
    interface: Annotated[str, INTERFACE] | None = None,
    threads_per_rank: Threads = 8,
    timeout_s: Timeout = 600.0,
) -> Any:
    """On a node: runs `work(**arguments)` as the rank that torchrun made of this process. Elsewhere: writes `folder`/skypilot.yaml.

    Other keys than those below are of the task. `conf/launcher/skypilot.yaml` explains them.

    Args:
        work, arguments, folder, hosts, ranks_per_host, threads_per_rank, timeout_s: those of `launchers.local.launch`.
        device_kind: the named cluster's; cuda: a rank has a GPU.

    Returns:
        What the rank returned; None where only the task was written.

    Raises:
        UserError: for a missing volume or accelerator.
    """
    if torchrun.is_rank():
        return torchrun.join(
            work, arguments, folder, hosts=hosts, ranks_per_host=ranks_per_host, threads_per_rank=threads_per_rank, timeout_s=timeout_s
        )
    if volume is None:
        remedy = "give launcher.volume=..., a name of `sky volumes ls`"
        raise UserError("the run folder needs one", where="launcher.volume", given="nothing", remedy=remedy)
    if device_kind == "cuda" and accelerator is None:
        remedy = "give launcher.accelerator=..., a name of `sky gpus list`"
        raise UserError("a node needs one a rank", where="launcher.accelerator", given="nothing", remedy=remedy)
    name = manifest.name_of(folder)
    path = manifest.write(
        folder,
        FILE,
        name=name,
        words=shlex.join(manifest.words_of(folder, "skypilot", f"{mount}/{name}")),
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        accelerator=accelerator if device_kind == "cuda" else None,
        cpus_per_rank=cpus_per_rank,
        host_memory_gb=host_memory_gb,
        infra=infra,
        use_spot=use_spot,
        image=image,
        setup=setup,
        workdir=str(ROOT),
        volumes={mount: volume} | ({data_mount: data_volume} if data_volume else {}),
        secrets=secrets or [],
        network_tier=network_tier,
        max_restarts=max_restarts,
        port=port,
        interface=interface,
    )
    print(f"skypilot    {counted(hosts, 'node')} of {counted(ranks_per_host, 'rank')}; the run will lie in {mount}/{name}")
    options = "".join(f"--secret {name} " for name in secrets or [])
    print(f"{'':>10}  submit it with: sky jobs launch {options}{path}")
    return None
