"""The task: valid for SkyPilot, with the devices of the cluster; and its nodes' command, run for real as two nodes would."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import yaml

from launchers import skypilot
from launchers.manifest import name_of
from launchers.torchrun import GOES_ON
from recsys_lab.errors import UserError
from tests.end_to_end.lines import SMALL, bits, environment, line, result
from tests.launchers.test_torchrun import a_port, wait_for_step

SCHEMA = json.loads((Path(__file__).parent / "skypilot_schema.json").read_text())
OPTIONS = {
    "hosts": 8,
    "ranks_per_host": 4,
    "device_kind": "cuda",
    "accelerator": "H100",
    "volume": "runs",
    "host_memory_gb": 512.0,
    "infra": "aws/us-east-1",
    "use_spot": True,
    "image": "registry.example/lab:1",
}


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def task_of(folder: Path, *words: str, **options: Any) -> dict[str, Any]:
    """The task of a run in `folder` whose command line had `words`."""
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(list(words)))
    assert skypilot.launch(print, {}, folder, **OPTIONS | options) is None
    return yaml.safe_load((folder / "skypilot.yaml").read_text())


def check(task: dict[str, Any]) -> dict[str, Any]:
    """Validates a task, and its resources as SkyPilot does, apart."""
    jsonschema.validate(task, SCHEMA["task"])
    jsonschema.validate(task["resources"], SCHEMA["resources"])
    return task


def test_the_task_is_valid_and_asks_for_the_clusters_devices(tmp_path: Path) -> None:
    task = check(task_of(tmp_path / "run-1", "launcher=skypilot", "model=dcn", "x='a b'"))
    assert (task["name"], task["num_nodes"], task["volumes"], task["envs"]) == ("run-1", 8, {"/mnt/runs": "runs"}, {GOES_ON: "1"})
    assert task["resources"] == {
        "cpus": "32+",
        "memory": "477+",
        "accelerators": {"H100": 4},
        "infra": "aws/us-east-1",
        "use_spot": True,
        "image_id": "docker:registry.example/lab:1",
    }
    assert "--nproc-per-node=4" in task["run"] and "--rdzv-id=run-1 " in task["run"]


def test_of_a_cpu_and_where_nothing_is_said_nothing_is_asked(tmp_path: Path) -> None:
    bare = {"device_kind": "cpu", "host_memory_gb": None, "infra": None, "use_spot": False, "image": None, "interface": "eth1"}
    task = check(task_of(tmp_path, **bare))
    assert task["resources"] == {"cpus": "32+"}
    assert task["envs"] == {GOES_ON: "1", "GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}


def test_secrets_data_and_the_network_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    keys = {"secrets": ["WANDB_API_KEY", "HF_TOKEN"], "data_volume": "clicks", "network_tier": "best"}
    task = check(task_of(tmp_path / "run", **keys))
    assert task["secrets"] == {"WANDB_API_KEY": None, "HF_TOKEN": None} and task["resources"]["network_tier"] == "best"
    assert task["volumes"] == {"/mnt/runs": "runs", "/mnt/data": "clicks"}
    assert "sky jobs launch --secret WANDB_API_KEY --secret HF_TOKEN " in capsys.readouterr().out


@pytest.mark.parametrize("text", ["on", "x='a b'", 'it\'s: "b" # $HOME', "é😀<&>", "a\nb\n\n c\t", "{{ x }}"])
def test_no_word_of_the_user_is_read_as_yaml_or_by_the_shell(text: str, tmp_path: Path) -> None:
    task = check(task_of(tmp_path, text, setup=f"true\n{text}", mount="/a: b", volume="on"))
    assert task["setup"] == f"true\n{text}" and task["volumes"] == {"/a: b": "on"}
    words = shlex.split(task["run"])
    assert words[words.index("run.py") + 1 :] == ["launcher=skypilot", text, f"hydra.run.dir=/a: b/{name_of(tmp_path)}"]


@pytest.mark.parametrize(("where", "key", "value"), [((), "num_node", 8), (("resources",), "accelerator", "H100"), ((), "num_nodes", "8")])
def test_a_task_with_a_mistake_is_not_valid(where: tuple[str, ...], key: str, value: Any, tmp_path: Path) -> None:
    task = task_of(tmp_path)
    (task[where[0]] if where else task)[key] = value
    with pytest.raises(jsonschema.ValidationError):
        check(task)


@pytest.mark.parametrize(("missing", "kind"), [("volume", "cpu"), ("accelerator", "cuda")])
def test_what_a_node_cannot_do_without_is_refused(missing: str, kind: str, tmp_path: Path) -> None:
    given = {"volume": "runs", "accelerator": "H100"} | {missing: None}
    with pytest.raises(UserError, match=rf"launcher.{missing}: .*given nothing; give launcher.{missing}="):
        skypilot.launch(print, {}, tmp_path, hosts=1, ranks_per_host=1, device_kind=kind, **given)
    assert not list(tmp_path.iterdir())


def test_the_task_lies_beside_the_run_with_the_words_of_its_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    task = check(task_of(tmp_path / "run", "model=dcn", "launcher=skypilot", "hydra.run.dir=x"))
    assert f"sky jobs launch {tmp_path / 'run' / 'skypilot.yaml'}" in capsys.readouterr().out
    assert task["run"].rstrip().endswith("run.py launcher=skypilot model=dcn hydra.run.dir=/mnt/runs/run")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_nodes_command_trains_and_goes_on(tmp_path: Path) -> None:
    """Two nodes as two process groups of this machine, with the variables that SkyPilot sets; both are killed once in between."""
    words = ("launcher=skypilot", "cluster=local", "launcher.hosts=2", "launcher.ranks_per_host=1", "launcher.volume=runs")
    more = (f"launcher.mount={tmp_path}", f"launcher.port={a_port()}", "launcher.cpus_per_rank=1", "model=dcn", "mode=train", *SMALL)
    for name in ("quiet", "killed"):
        done = line(*words, *more, "data.rows_train=12000", f"hydra.run.dir={tmp_path / 'here' / name}", cache=tmp_path / "cache")
        assert done.code == 0, done.err
    _end_well(_nodes(tmp_path / "here" / "quiet", tmp_path / "cache"))
    first = _nodes(tmp_path / "here" / "killed", tmp_path / "cache")
    wait_for_step(tmp_path / "killed", 30, first[0])
    for node in first:
        for process in [*psutil.Process(node.pid).children(recursive=True), node]:
            process.send_signal(signal.SIGKILL)
        node.wait()
    _end_well(_nodes(tmp_path / "here" / "killed", tmp_path / "cache"))
    assert result(tmp_path / "killed")["choices"]["launcher"] == "skypilot"
    assert bits(tmp_path / "killed") == bits(tmp_path / "quiet")


def _end_well(nodes: list[subprocess.Popen]) -> None:
    for node in nodes:
        _, said = node.communicate(timeout=600)
        assert node.returncode == 0, said


def _nodes(folder: Path, cache: Path) -> list[subprocess.Popen]:
    """The command of each node of the task in `folder`, begun as SkyPilot's agents begin it."""
    task = check(yaml.safe_load((folder / "skypilot.yaml").read_text()))
    there = environment(cache) | task["envs"] | {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1"}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "cwd": task["workdir"]}
    begun = [there | {"SKYPILOT_NODE_RANK": str(node)} for node in (0, 1)]
    return [subprocess.Popen(["bash", "-c", task["run"]], env=os.environ | variables, **quiet) for variables in begun]
