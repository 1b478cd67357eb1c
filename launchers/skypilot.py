"""SkyPilot: a task beside the run, for `sky jobs launch`; on its nodes torchrun starts the ranks, and the same launcher joins them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Interval
from pydantic import Strict

from launchers import torchrun
from launchers.kubernetes import IMAGE, INTERFACE, LABEL, PATH, name_of, words_of
from recsys_lab.base.paths import ROOT
from recsys_lab.base.ranges import CountFromZero, Hosts, Positive, RanksPerHost, Threads, Timeout, text_like
from recsys_lab.errors import UserError
from recsys_lab.units import counted

FILE = "skypilot.yaml"
ACCELERATOR = text_like(r"[A-Za-z0-9][A-Za-z0-9_.-]*", 63, "a name of `sky gpus list`, such as H100")
INFRA = text_like(r"[a-z0-9*]+(/[A-Za-z0-9_.*-]+){0,3}", 255, "where to run, such as k8s or aws/us-east-1")
COMMAND = text_like(r"(?=.*\S)[^\x00]*", 4096, "a command of the shell")
#: What a node does: the first one's address is where torchrun's agents meet.
RUN = """\
export PATH="$PWD/.venv/bin:$PATH"
exec torchrun --nnodes="$SKYPILOT_NUM_NODES" --nproc-per-node={ranks} --max-restarts={restarts} \\
  --rdzv-backend=c10d --rdzv-id={name} --rdzv-endpoint="$(head -n 1 <<< "$SKYPILOT_NODE_IPS"):{port}" \\
  --rdzv-conf="is_host=$((SKYPILOT_NODE_RANK == 0))" \\
  --local-addr="$(sed -n "$((SKYPILOT_NODE_RANK + 1))p" <<< "$SKYPILOT_NODE_IPS")" \\
  run.py {words}
"""


@dataclass(frozen=True)
class Nodes:
    """One a host. `accelerator`: of which each node has one a rank; None: none. Memory in GB (1e9 bytes). `infra` None: SkyPilot chooses.
    `workdir`: the checkout here that is copied to them. `interface`: of collectives; None: the one that torch chooses.
    """

    hosts: int
    ranks_per_host: int
    accelerator: str | None
    cpus_per_rank: int
    host_memory_gb: float | None
    infra: str | None
    use_spot: bool
    image: str | None
    setup: str
    workdir: str
    volume: str
    mount: str
    max_restarts: int
    port: int
    interface: str | None = None


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
    infra: Annotated[str, INFRA] | None = None,
    use_spot: bool = False,
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
    nodes = Nodes(
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
        volume=volume,
        mount=mount,
        max_restarts=max_restarts,
        port=port,
        interface=interface,
    )
    name = name_of(folder)
    words = ["launcher=skypilot", *words_of(folder), f"hydra.run.dir={mount}/{name}"]
    path = folder / FILE
    written = yaml.dump(task(name, nodes, words), Dumper=_InLines, sort_keys=False, width=1000)
    path.write_text(f"# sky jobs launch {FILE}\n{written}", encoding="utf-8")
    print(f"skypilot    {counted(hosts, 'node')} of {counted(ranks_per_host, 'rank')}; the run will lie in {mount}/{name}")
    print(f"{'':>10}  submit it with: sky jobs launch {path}")
    return None


class _InLines(yaml.SafeDumper):
    """Text of several lines as such, so that people can read it."""


_InLines.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def task(name: str, nodes: Nodes, words: Sequence[str]) -> dict[str, Any]:
    """SkyPilot's task that runs `run.py` with `words`. One that is recovered goes on with the run in its folder."""
    variables = {torchrun.GOES_ON: "1"}
    if nodes.interface:
        variables |= {f"{library}_SOCKET_IFNAME": nodes.interface for library in ("GLOO", "NCCL")}
    return {
        "name": name,
        "num_nodes": nodes.hosts,
        "resources": _resources(nodes),
        "workdir": nodes.workdir,
        "volumes": {nodes.mount: nodes.volume},
        "envs": variables,
        "setup": nodes.setup,
        "run": RUN.format(
            ranks=nodes.ranks_per_host, restarts=nodes.max_restarts, name=name, port=nodes.port, words=" ".join(map(shlex.quote, words))
        ),
    }


def _resources(nodes: Nodes) -> dict[str, Any]:
    """Of a node: at least so many cores and so much memory, where it is said."""
    asked: dict[str, Any] = {"cpus": f"{nodes.cpus_per_rank * nodes.ranks_per_host}+"}
    if nodes.host_memory_gb is not None:
        asked["memory"] = f"{max(1, round(nodes.host_memory_gb * 1e9 / 2**30))}+"  # SkyPilot counts in 2^30 bytes
    if nodes.accelerator:
        asked["accelerators"] = {nodes.accelerator: nodes.ranks_per_host}
    if nodes.infra:
        asked["infra"] = nodes.infra
    if nodes.use_spot:
        asked["use_spot"] = True
    if nodes.image:
        asked["image_id"] = f"docker:{nodes.image}"
    return asked
