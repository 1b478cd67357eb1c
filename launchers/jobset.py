"""The manifest of a run: a JobSet (jobset.x-k8s.io/v1alpha2) of one indexed Job.

Each host is a pod, and in each pod torchrun starts a rank for each device.

Pods find one another through the JobSet's headless service. torchrun's agents meet at the first pod's name in it. torchrun restarts a
rank that is lost, the JobSet a pod. Both resume from the run's newest checkpoint on the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launchers.torchrun import GOES_ON

JOB = "hosts"
CONTAINER = "ranks"
#: The first pod holds the store in which agents meet; a Job tells each pod its number.
START = 'exec torchrun --rdzv-conf="is_host=$((JOB_COMPLETION_INDEX == 0))" "$@"'


@dataclass(frozen=True)
class Pods:
    """One a host. `gpu_resource`: the name by which a device is asked for, one a rank; None: none. Memory in GB (1e9 bytes).
    `interface`: the network interface of collectives; None: the one that torch chooses.
    """

    hosts: int
    ranks_per_host: int
    image: str
    workdir: str
    claim: str
    mount: str
    gpu_resource: str | None
    cpus_per_rank: int
    host_memory_gb: float | None
    shared_memory_gb: float
    node_selector: dict[str, str]
    max_restarts: int
    port: int
    interface: str | None = None


def jobset(name: str, namespace: str, queue: str | None, pods: Pods, words: Sequence[str]) -> dict[str, Any]:
    """The manifest that runs `run.py` with `words`."""
    labels = {"app.kubernetes.io/name": "recsys-lab"} | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name},
            "failurePolicy": {"maxRestarts": pods.max_restarts},
            "replicatedJobs": [{"name": JOB, "replicas": 1, "template": {"spec": _job(name, pods, words)}}],
        },
    }


def _job(name: str, pods: Pods, words: Sequence[str]) -> dict[str, Any]:
    """batch/v1: as many pods as hosts, all at once. One that fails ends the Job, and the JobSet makes all of them again."""
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [_container(name, pods, words)],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": pods.claim}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": _bytes(pods.shared_memory_gb)}},
        ],
    }
    if pods.node_selector:
        spec["nodeSelector"] = pods.node_selector
    return {
        "completionMode": "Indexed",
        "completions": pods.hosts,
        "parallelism": pods.hosts,
        "backoffLimit": 0,
        "template": {"spec": spec},
    }


def _container(name: str, pods: Pods, words: Sequence[str]) -> dict[str, Any]:
    torchrun = [
        f"--nnodes={pods.hosts}",
        f"--nproc-per-node={pods.ranks_per_host}",
        f"--max-restarts={pods.max_restarts}",
        "--rdzv-backend=c10d",
        f"--rdzv-id={name}",
        f"--rdzv-endpoint={name}-{JOB}-0-0.{name}:{pods.port}",
        "--local-addr=$(POD_IP)",
    ]
    return {
        "name": CONTAINER,
        "image": pods.image,
        "workingDir": pods.workdir,
        "command": ["bash", "-c", START, "torchrun"],
        "args": [*torchrun, "run.py", *(word.replace("$(", "$$(") for word in words)],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": GOES_ON, "value": "1"},
            *({"name": f"{library}_SOCKET_IFNAME", "value": pods.interface} for library in ("GLOO", "NCCL") if pods.interface),
        ],
        "ports": [{"containerPort": pods.port}],
        "resources": _resources(pods),
        "volumeMounts": [{"name": "runs", "mountPath": pods.mount}, {"name": "shared-memory", "mountPath": "/dev/shm"}],
    }


def _resources(pods: Pods) -> dict[str, Any]:
    """Devices are limits; cores and memory are asked for, and may be exceeded where the node has more."""
    requests = {"cpu": str(pods.cpus_per_rank * pods.ranks_per_host)}
    if pods.host_memory_gb is not None:
        requests["memory"] = _bytes(pods.host_memory_gb)
    devices = {pods.gpu_resource: str(pods.ranks_per_host)} if pods.gpu_resource else {}
    return {"requests": requests | devices} | ({"limits": devices} if devices else {})


def _bytes(gb: float) -> str:
    return str(int(gb * 1e9))
