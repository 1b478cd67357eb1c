"""Kubernetes: a manifest beside the run, for `kubectl apply`; in its pods torchrun starts the ranks, and the same launcher joins them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import Strict

from launchers import manifest, torchrun
from recsys_lab.base.ranges import Count, CountFromZero, Hosts, Positive, RanksPerHost, Threads, Timeout, text_like
from recsys_lab.errors import UserError
from recsys_lab.units import counted

FILE = "kubernetes.yaml"
#: What Kubernetes takes for names (RFC 1123), labels and resources, and what an image is called.
LABEL = text_like(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63, "lower-case letters, digits and - between them")
SUBDOMAIN = text_like(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", 253, "lower-case letters, digits, - and . between them"
)
_NAME = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
QUALIFIED = text_like(_NAME, 317, "a name, or DOMAIN/NAME, of letters, digits, - _ .")
LABEL_VALUE = text_like(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", 63, "letters, digits, - _ . between them, or nothing")
TAINT = text_like(
    rf"{_NAME}(=([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?)?:(NoSchedule|PreferNoSchedule|NoExecute)",
    400,
    "a taint such as dedicated=gpu:NoSchedule",
)
IMAGE = text_like(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    512,
    "an image such as registry.example/recsys_lab:1",
)
INTERFACE = text_like(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,14}(,[A-Za-z0-9][-A-Za-z0-9_.]{0,14})*", 255, "network interfaces such as eth0")
PATH = text_like(r"/[^:\x00-\x1f]*", 1024, "an absolute path without :")


def launch(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    device_kind: Literal["cuda", "cpu"],
    image: Annotated[str, IMAGE] | None = None,
    image_secret: Annotated[str, SUBDOMAIN] | None = None,
    workdir: Annotated[str, PATH] = "/recsys_lab",
    claim: Annotated[str, SUBDOMAIN] | None = None,
    mount: Annotated[str, PATH] = "/mnt/runs",
    data_claim: Annotated[str, SUBDOMAIN] | None = None,
    data_mount: Annotated[str, PATH] = "/mnt/data",
    secret: Annotated[str, SUBDOMAIN] | None = None,
    group: Annotated[int, Strict(), Interval(ge=0, le=2**31 - 1)] = 1000,
    namespace: Annotated[str, LABEL] = "default",
    queue: Annotated[str, LABEL] | None = None,
    node_selector: dict[Annotated[str, QUALIFIED], Annotated[str, LABEL_VALUE]] | None = None,
    tolerations: list[Annotated[str, TAINT]] | None = None,
    gpu_resource: Annotated[str, QUALIFIED] = "nvidia.com/gpu",
    rdma_resource: Annotated[str, QUALIFIED] | None = None,
    rdma_count: Count = 1,
    cpus_per_rank: Threads = 8,
    host_memory_gb: Positive | None = None,
    shared_memory_gb: Positive = 16.0,
    max_restarts: CountFromZero = 3,
    port: Annotated[int, Strict(), Interval(ge=1024, le=65535)] = 29500,
    interface: Annotated[str, INTERFACE] | None = None,
    submit: bool = False,
    threads_per_rank: Threads = 8,
    timeout_s: Timeout = 600.0,
) -> Any:
    """In a pod: runs `work(**arguments)` as the rank that torchrun made of this process. Elsewhere: writes `folder`/kubernetes.yaml.

    Other keys than those below are of the manifest. `conf/launcher/kubernetes.yaml` explains them.

    Args:
        work, arguments, folder, hosts, ranks_per_host, threads_per_rank, timeout_s: those of `launchers.local.launch`.
        device_kind: the named cluster's; cuda: a rank has a GPU.
        submit: whether to apply the manifest with kubectl.

    Returns:
        What the rank returned; None where only the manifest was written.

    Raises:
        UserError: for a missing image or claim, and where kubectl refuses.
    """
    if torchrun.is_rank():
        return torchrun.join(
            work, arguments, folder, hosts=hosts, ranks_per_host=ranks_per_host, threads_per_rank=threads_per_rank, timeout_s=timeout_s
        )
    for key, value, remedy in (("image", image, "an image with this checkout"), ("claim", claim, "a PersistentVolumeClaim for the runs")):
        if not value:
            raise UserError("a pod needs one", where=f"launcher.{key}", given="nothing", remedy=f"give launcher.{key}=..., {remedy}")
    name = manifest.name_of(folder)
    gpus = {gpu_resource: ranks_per_host} if device_kind == "cuda" else {}
    path = manifest.write(
        folder,
        FILE,
        name=name,
        words=manifest.words_of(folder, "kubernetes", f"{mount}/{name}"),
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        image=image,
        image_secret=image_secret,
        workdir=workdir,
        volumes=[("runs", claim, mount, False), *([("data", data_claim, data_mount, True)] if data_claim else [])],
        secret=secret,
        group=group,
        namespace=namespace,
        queue=queue,
        node_selector=node_selector,
        tolerations=[_toleration(taint) for taint in tolerations or []],
        gpu_taint=gpu_resource if gpus else None,
        devices=gpus | ({rdma_resource: rdma_count} if rdma_resource else {}),
        rdma=rdma_resource is not None,
        cpus_per_rank=cpus_per_rank,
        host_memory_gb=host_memory_gb,
        shared_memory_gb=shared_memory_gb,
        max_restarts=max_restarts,
        port=port,
        interface=interface,
    )
    print(f"kubernetes  {counted(hosts, 'pod')} of {counted(ranks_per_host, 'rank')}; the run will lie in {mount}/{name}")
    print(f"{'':>10}  {_apply(path) if submit else f'submit it with: kubectl apply -f {path}'}")
    return None


def _toleration(taint: str) -> dict[str, str]:
    """Of a taint as kubectl writes it: KEY=VALUE:EFFECT, or KEY:EFFECT for any value."""
    key, _, effect = taint.rpartition(":")
    key, equals, value = key.partition("=")
    return {"key": key, **({"operator": "Equal", "value": value} if equals else {"operator": "Exists"}), "effect": effect}


def _apply(path: Path) -> str:
    if shutil.which("kubectl") is None:
        raise UserError("no kubectl on this machine", where="launcher.submit", given="true", remedy=f"submit {path} from one that has it")
    done = subprocess.run(["kubectl", "apply", "-f", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())
        raise UserError("kubectl refuses the manifest", where=path, given=reason, remedy="mend it, or see kubectl config current-context")
    return done.stdout.strip()
