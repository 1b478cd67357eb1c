"""The manifest: valid for Kubernetes, with the devices of the cluster; and its pods' command, run for real as two pods would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import psutil
import pytest
import yaml

from launchers import kubernetes, manifest
from launchers.processes import CHECKPOINT_S
from launchers.torchrun import GOES_ON
from recsys_lab.base.schema import checked, schema_of
from recsys_lab.errors import UserError
from tests.end_to_end.lines import ROOT, SMALL, bits, environment, line, result
from tests.launchers.test_torchrun import wait_for_step

#: What jobset.x-k8s.io/v1alpha2 says of its own fields that are used here; the Job inside is batch/v1.
JOBSET = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["replicatedJobs"],
            "properties": {
                "network": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"enableDNSHostnames": {"type": "boolean"}, "subdomain": {"type": "string", "maxLength": 63}},
                },
                "failurePolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"maxRestarts": {"type": "integer", "minimum": 0}},
                },
                "replicatedJobs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "template"],
                        "properties": {"name": {"type": "string"}, "replicas": {"type": "integer"}, "template": {"type": "object"}},
                    },
                },
            },
        },
    },
}
OPTIONS = {
    "hosts": 8,
    "ranks_per_host": 4,
    "device_kind": "cuda",
    "image": "registry.example/lab:1",
    "claim": "runs",
    "host_memory_gb": 512.0,
    "node_selector": {"gpu": "h100"},
}
IMAGE = ("launcher.image=registry.example/lab:1", "launcher.claim=runs")


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def manifest_of(folder: Path, *words: str, **options: Any) -> dict[str, Any]:
    """The manifest of a run in `folder` whose command line had `words`."""
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(list(words)))
    assert kubernetes.launch(print, {}, folder, **OPTIONS | options) is None
    return yaml.safe_load((folder / "kubernetes.yaml").read_text())


def check(jobset: dict[str, Any]) -> dict[str, Any]:
    """Validates a manifest; its Job's pod."""
    jsonschema.validate(jobset, JOBSET)
    template = jobset["spec"]["replicatedJobs"][0]["template"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{jobset['metadata']['name']}-hosts-0"}} | template
    kubernetes_validate.validate(job, "1.31", strict=True)
    return template["spec"]["template"]["spec"]


def test_pods_use_the_interface_that_is_named_and_else_what_torch_chooses(tmp_path: Path) -> None:
    def variables(**options: Any) -> dict[str, str]:
        container = check(manifest_of(tmp_path, **options))["containers"][0]
        return {each["name"]: each["value"] for each in container["env"] if "value" in each}

    assert variables() == {GOES_ON: "1"}
    assert variables(interface="eth1") == {GOES_ON: "1", "GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}


def test_the_manifest_is_valid_and_asks_for_the_clusters_devices(tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    jobset = manifest_of(folder, "launcher=kubernetes", "model=dcn", "x=$(y)", namespace="research", queue="gpu")
    pod = check(jobset)
    assert jobset["metadata"]["namespace"] == "research" and jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu"
    container, job = pod["containers"][0], jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 8, 8)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert container["resources"]["requests"] == {"cpu": "32", "memory": "512000000000", "nvidia.com/gpu": "4"}
    assert {"--nnodes=8", "--nproc-per-node=4", "--rdzv-endpoint=run-1-hosts-0-0.run-1:29500"} <= set(container["args"])
    assert "x=$$(y)" in container["args"]  # Kubernetes would put a variable of its own in
    assert pod["nodeSelector"] == {"gpu": "h100"}


def test_pods_get_what_a_cluster_with_fast_cards_secrets_and_taints_asks_for(tmp_path: Path) -> None:
    keys = {"rdma_resource": "rdma/hca", "rdma_count": 2, "secret": "trackers", "image_secret": "registry", "data_claim": "clicks"}
    pod = check(manifest_of(tmp_path / "run", tolerations=["dedicated=gpu:NoExecute", "spot:NoSchedule"], group=7, **keys))
    container = pod["containers"][0]
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"},
        {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4", "rdma/hca": "2"}
    assert container["securityContext"] == {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}}
    assert container["envFrom"] == [{"secretRef": {"name": "trackers"}}] and pod["imagePullSecrets"] == [{"name": "registry"}]
    assert {"name": "data", "mountPath": "/mnt/data", "readOnly": True} in container["volumeMounts"]
    claims = [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one]
    assert claims == ["runs", "clicks"] and pod["securityContext"]["fsGroup"] == 7


def test_without_them_pods_ask_for_nothing_of_the_kind(tmp_path: Path) -> None:
    pod = check(manifest_of(tmp_path / "run", device_kind="cpu"))
    container = pod["containers"][0]
    assert not {"tolerations", "imagePullSecrets"} & pod.keys() and not {"securityContext", "envFrom"} & container.keys()
    assert pod["shareProcessNamespace"] and pod["terminationGracePeriodSeconds"] > CHECKPOINT_S
    assert [one["name"] for one in container["volumeMounts"]] == ["runs", "shared-memory"]


def test_the_checkout_is_where_the_images_have_it(tmp_path: Path) -> None:
    container = check(manifest_of(tmp_path))["containers"][0]
    files = [path.read_text() for path in (ROOT / "docker").glob("*.Dockerfile")]
    assert files and all(f"WORKDIR {container['workingDir']}\n" in text and "USER 1000\n" in text for text in files)


@pytest.mark.parametrize("taint", ["gpu", "gpu:Never", "a b:NoSchedule", "x=y z:NoSchedule"])
def test_no_taint_is_refused(taint: str) -> None:
    needed = {"hosts": 1, "ranks_per_host": 1, "device_kind": "cpu"}
    with pytest.raises(UserError, match="launcher.tolerations"):
        checked(needed | {"tolerations": [taint]}, schema_of(kubernetes.launch), "launcher")


@pytest.mark.parametrize("text", ["on", "x=1e3", "it's: 'a' \"b\" # c", "é😀<&>", "a\nb\n\n c\t", "{{ x }}"])
def test_no_word_of_the_user_is_read_as_yaml(text: str, tmp_path: Path) -> None:
    words = check(manifest_of(tmp_path, text, mount="/a: b", namespace="1"))["containers"][0]["args"]
    assert words[words.index("run.py") + 1 :] == ["launcher=kubernetes", text, f"hydra.run.dir=/a: b/{manifest.name_of(tmp_path)}"]


def test_a_manifest_with_a_mistake_is_not_valid(tmp_path: Path) -> None:
    jobset = manifest_of(tmp_path)
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 8
    with pytest.raises(kubernetes_validate.ValidationError):
        check(jobset)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("runs/2026-01-02_03-04-05_dcn_dmt", "run-2026-01-02-03-04-05-dcn-dmt"),
        ("runs/sweep_A/7", "sweep-a-7"),
        ("runs/" + "long_" * 20, None),
    ],
)
def test_names_are_such_as_kubernetes_allows(folder: str, name: str | None) -> None:
    chosen = manifest.name_of(Path(folder))
    assert name is None or chosen == name
    assert len(chosen) <= manifest.LONGEST_NAME and chosen[0].isalpha() and set(chosen) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert chosen != manifest.name_of(Path(folder + "x"))


def test_no_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="launcher.image: a pod needs one"):
        kubernetes.launch(print, {}, tmp_path, hosts=1, ranks_per_host=1, device_kind="cuda")


def test_kubectl_is_called_only_when_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    called, run = tmp_path / "called", tmp_path / "run"
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\necho "$@" >> {called}\ngrep -q registry.example "$3" && echo created\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (run / ".hydra").mkdir(parents=True)
    (run / ".hydra" / "overrides.yaml").write_text("[model=dcn, launcher=kubernetes, launcher.submit=true, hydra.run.dir=x]")
    given = {"hosts": 2, "ranks_per_host": 2, "device_kind": "cpu", "claim": "runs"}
    assert kubernetes.launch(print, {}, run, image="registry.example/lab:1", **given) is None
    assert not called.exists() and f"kubectl apply -f {run / 'kubernetes.yaml'}" in capsys.readouterr().out
    kubernetes.launch(print, {}, run, image="registry.example/lab:1", submit=True, **given)
    assert called.read_text().split() == ["apply", "-f", str(run / "kubernetes.yaml")]
    pod = check(yaml.safe_load((run / "kubernetes.yaml").read_text()))
    assert pod["containers"][0]["args"][-3:] == ["launcher=kubernetes", "model=dcn", "hydra.run.dir=/mnt/runs/run"]
    assert "limits" not in pod["containers"][0]["resources"]
    with pytest.raises(UserError, match="kubectl refuses"):
        kubernetes.launch(print, {}, run, image="other/lab:1", submit=True, **given)


@pytest.mark.long
def test_a_sweep_writes_a_manifest_a_run(tmp_path: Path) -> None:
    words = ("-m", "launcher=kubernetes", "cluster=h100x8", *IMAGE, "model=dlrm,dcn", *SMALL, f"hydra.sweep.dir={tmp_path / 'sweep'}")
    done = line(*words, cache=tmp_path / "cache")
    assert done.code == 0, done.err
    made = [yaml.safe_load((tmp_path / "sweep" / str(job) / "kubernetes.yaml").read_text()) for job in (0, 1)]
    pods = [check(one) for one in made]
    assert [pod["containers"][0]["resources"]["limits"] for pod in pods] == [{"nvidia.com/gpu": "8"}] * 2
    assert [one["metadata"]["name"] for one in made] == ["sweep-0", "sweep-1"]
    assert [{"name": "WANDB_RUN_GROUP", "value": "sweep"} in pod["containers"][0]["env"] for pod in pods] == [True, True]
    assert ["model=dlrm" in pods[0]["containers"][0]["args"], "model=dcn" in pods[1]["containers"][0]["args"]] == [True, True]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_pods_command_trains_and_goes_on(tmp_path: Path) -> None:
    """Two pods as two process groups of this machine, only the name of the first one's host replaced; both are killed once in between."""
    words = ("launcher=kubernetes", "cluster=local", "launcher.hosts=2", "launcher.ranks_per_host=1", *IMAGE)
    more = (f"launcher.mount={tmp_path}", f"launcher.workdir={ROOT}", "launcher.cpus_per_rank=1", "model=dcn", "mode=train", *SMALL)
    for name in ("quiet", "killed"):
        done = line(*words, *more, "data.rows_train=12000", f"hydra.run.dir={tmp_path / 'here' / name}", cache=tmp_path / "cache")
        assert done.code == 0, done.err
    _end_well(_pods(tmp_path / "here" / "quiet", tmp_path / "cache"))
    first = _pods(tmp_path / "here" / "killed", tmp_path / "cache")
    wait_for_step(tmp_path / "killed", 30, first[0])
    for pod in first:
        for process in [*psutil.Process(pod.pid).children(recursive=True), pod]:
            process.send_signal(signal.SIGKILL)
        pod.wait()
    _end_well(_pods(tmp_path / "here" / "killed", tmp_path / "cache"))
    assert result(tmp_path / "killed")["choices"]["launcher"] == "kubernetes"
    assert bits(tmp_path / "killed") == bits(tmp_path / "quiet")


def _end_well(pods: list[subprocess.Popen]) -> None:
    until = time.monotonic() + 600
    for pod in pods:
        _, said = pod.communicate(timeout=until - time.monotonic())
        assert pod.returncode == 0, said


def _pods(folder: Path, cache: Path) -> list[subprocess.Popen]:
    """The command of each pod of the manifest in `folder`, begun."""
    container = yaml.safe_load((folder / "kubernetes.yaml").read_text())["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]["containers"][0]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    given = [f"--rdzv-endpoint=127.0.0.1:{port}" if word.startswith("--rdzv-endpoint=") else word for word in container["args"]]
    given = [word.replace("$(POD_IP)", "127.0.0.1") for word in given]
    goes_on = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pods = []
    for number in range(2):
        variables = environment(cache) | goes_on | {"JOB_COMPLETION_INDEX": str(number), "PATH": path, "GLOO_SOCKET_IFNAME": "lo"}
        command = [*container["command"], *given]
        pods.append(
            subprocess.Popen(
                command, cwd=container["workingDir"], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    return pods
