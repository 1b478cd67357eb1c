"""Completion in a real bash: what TAB makes of a line, within a second, without Hydra or torch."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from recsys_lab.__main__ import COMMANDS
from recsys_lab.base.paths import CONF
from recsys_lab.commands.completion import SHELLS, answers
from recsys_lab.config.composition import composed
from recsys_lab.config.frozen import register_resolvers
from recsys_lab.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where `recsys-lab` is this checkout, as an installed wheel would have it."""
    program = tmp_path / "bin" / "recsys-lab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m recsys_lab "$@"\n')
    program.chmod(0o755)
    return os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PS1": "> ", "TERM": "dumb"}


def read_until_quiet(terminal: int, quiet_s: float) -> str:
    found = b""
    while select.select([terminal], [], [], quiet_s)[0]:
        found += os.read(terminal, 65536)
    return found.decode()


def after_tab(line: str, environment: dict[str, str], folder: Path) -> str:
    """The line as an interactive bash has it after TAB."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
    try:
        os.write(terminal, b'eval "$(recsys-lab completion bash)"; bind "set enable-bracketed-paste off"; echo rea""dy\n')
        said, ends = "", time.monotonic() + 30
        while "ready" not in said and time.monotonic() < ends:
            said += read_until_quiet(terminal, 0.2)
        os.write(terminal, line.encode() + b"\t")
        said, ends = "", time.monotonic() + 15
        while time.monotonic() < ends and said.replace("\a", "").strip() in ("", line):
            said += read_until_quiet(terminal, 0.5)
        return said.replace("\a", "")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("recsys-lab sche", "recsys-lab schema "),
        ("recsys-lab run model=dcn_m", "recsys-lab run model=dcn_mlperf "),
        ("recsys-lab run sharder=dmt sharder.planner.pe", "recsys-lab run sharder=dmt sharder.planner.permute="),
        ("recsys-lab run profile@simulate.profile=nv", "recsys-lab run profile@simulate.profile=nvidia_pytorch "),
    ],
)
def test_tab_completes_a_word(line: str, completed: str, environment: dict[str, str], tmp_path: Path) -> None:
    assert after_tab(line, environment, tmp_path) == completed


def test_bash_is_given_every_answer_within_a_second(environment: dict[str, str], tmp_path: Path) -> None:
    script = (
        SHELLS["bash"]
        + 'COMP_LINE="recsys-lab run model=d"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(recsys-lab run model = d); COMP_CWORD=4\n'
    )
    script += '_recsys_lab; printf "%s\\n" "${COMPREPLY[@]}"; complete -p recsys-lab'
    took = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        took.append(time.perf_counter() - began)
    assert done.stdout.splitlines()[:-1] == [f"{path.stem} " for path in sorted((CONF / "model").glob("d*.yaml"))]
    assert done.stdout.splitlines()[-1].endswith("-F _recsys_lab recsys-lab")
    assert min(took) < 1, took


def test_nothing_that_takes_time_is_imported() -> None:
    says = "import sys; from recsys_lab.__main__ import main; main(['completion', '--line', 'recsys-lab run sharder.']); "
    says += "print(sorted({'torch', 'hydra', 'omegaconf', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", says], cwd=ROOT, capture_output=True, text=True, check=True)
    *offered, heavy = done.stdout.splitlines()
    assert {"sharder.executor.", "sharder.planner.", "sharder.memory_budget_gb="} <= set(offered) and heavy == "[]"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("recsys-lab ", sorted(COMMANDS)),
        ("recsys-lab run mode=", ["mode=auto", "mode=plan", "mode=simulate", "mode=train"]),
        ("recsys-lab run -m model=dcn,deep", ["model=dcn,deepfm"]),
        ("recsys-lab run trainer.early_stopping.p", ["trainer.early_stopping.patience="]),
        ("recsys-lab run sharder=dmt sharder.t", ["sharder.tower_modules=", "sharder.towers."]),
        ("recsys-lab run sharder=dmt sharder.planner.permute=r", ["sharder.planner.permute=rows"]),
        ("recsys-lab run cluster=h100 cluster.device.mem", ["cluster.device.memory_bandwidth_gb_s=", "cluster.device.memory_gb="]),
        ("recsys-lab run launcher=slurm launcher.t", ["launcher.threads_per_rank=", "launcher.timeout_s="]),
        ("recsys-lab run experiment=neo/t", ["experiment=neo/table3"]),
        ("recsys-lab decide precision=f", ["precision=fp16_comms", "precision=fp16_tables", "precision=fp32"]),
        ("recsys-lab run resume=", []),
        ("recsys-lab show --", ["--help", "--json", "--plan"]),
        ("recsys-lab show run", []),
        ("recsys-lab completion z", ["zsh"]),
        ("recsys-lab nonsense x", []),
        ("recsys-lab run 'model=d", []),
    ],
)
def test_what_is_offered(line: str, offered: list[str]) -> None:
    assert answers(line) == offered


def test_choices_of_the_users_own_folder_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text("defaults: [dcn]\nmy_key: 1\n")
    monkeypatch.chdir(tmp_path)
    assert answers("recsys-lab run model=mi") == ["model=mine"]
    assert answers("recsys-lab run model=mine model.my") == ["model.my_key="]
    assert answers("recsys-lab run model=mine model.cross_r") == ["model.cross_rank="]


@pytest.mark.parametrize(
    "words", [[], ["model=dlrm", "sharder=dmt"], ["model=xlrm", "cluster=h100x64"], ["experiment=frappe", "launcher=slurm"]], ids=str
)
def test_keys_are_those_of_the_config_that_would_run(words: list[str]) -> None:
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config, _ = composed(words)
    for group in ("model", "optimizer", "trainer", "cluster", "sharder", "simulate", "simulate.profile", "data", "launcher"):
        theirs = {f"{group}.{key}" for key in OmegaConf.select(config, group) if key != "_target_"}
        assert {word.rstrip("=.") for word in answers(f"recsys-lab run {' '.join(words)} {group}.")} == theirs


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "5\n", "", "defaults: [mine]\n", "defaults: 5\n", "defaults: [5, {a: b}]\n", "defaults: null\n"]
)
def test_choices_of_the_users_that_are_none_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert answers("recsys-lab run model=mine model.") == []
    assert answers("recsys-lab run model=mi") == ["model=mine"]


def test_a_choice_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    for name, content in {"open": b"a: [1\n", "bytes": b"a: \xff\n"}.items():
        (tmp_path / "conf" / "model" / f"{name}.yaml").write_bytes(content)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UserError, match=f"model/{name}.yaml: not (valid YAML|UTF-8)"):
            answers(f"recsys-lab run model={name} model.")
