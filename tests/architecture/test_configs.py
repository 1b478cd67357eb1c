"""Every choice of every group, every experiment and every command that a document shows composes and is accepted as it stands."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

from recsys_lab.config import command_line
from tests.architecture.commands import Command, mentioned_commands, shown_commands

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
YAMLS = sorted(CONF.rglob("*.yaml"))
#: Where a group is chosen under another name than its folder's, and those that are Hydra's own.
CHOSEN_AS = {"profile": "profile@simulate.profile"}
HYDRAS_OWN = {"hydra"}
#: What a choice cannot do without: a pod or a node is for each host of the cluster, and cluster=local has as many as the launcher.
NEEDS = {("launcher", choice): ("cluster=h100x8",) for choice in ("kubernetes", "skypilot")}
NEEDS |= {("model", path.stem): (f"model.file={ROOT / 'docs' / 'tables.csv'}",) for path in (CONF / "model").glob("tables*.yaml")}
#: Groups with folders of their own: of parts that their choices are put together from, and of the studies of a paper.
OF_PARTS = {"cluster", "sharder", "experiment"}
CHOICES = [(p.parent.name, p.stem) for p in YAMLS if p.parent.parent == CONF]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "experiments").rglob("*.md"))]
#: Those with a shell's variable use a reader's own folder: tests/docs runs them in one.
SHOWN = [command for file in DOCUMENTS for command in shown_commands(file, ROOT) if "$" not in " ".join(command.arguments)]
MENTIONED = list({c.arguments: c for file in [*YAMLS, ROOT / "run.py"] for c in mentioned_commands(file, ROOT)}.values())


def targets(node: Any) -> list[str]:
    """Every `_target_` in a loaded YAML, however deep."""
    if isinstance(node, dict):
        own = [node["_target_"]] if "_target_" in node else []
        return own + [target for value in node.values() for target in targets(value)]
    return [target for value in node for target in targets(value)] if isinstance(node, list) else []


@cache
def accept(arguments: tuple[str, ...]) -> None:
    """Raises UserError unless the command line takes `arguments`. Each is composed once.

    Folders of the reader's own are not there to be read. A line that starts from a run has one of a table here.
    """
    there = [argument.replace("/path/to/my/conf", str(CONF)) for argument in arguments if not argument.startswith("resume=")]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        (run / ".hydra").mkdir()
        (run / "config.yaml").touch()
        (run / ".hydra" / "overrides.yaml").write_text("[data=table, data.root=clicks]")
        command_line.read([word.replace("RUN", str(run)) if word.startswith("start_from=") else word for word in there])


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: str(path.relative_to(CONF)))
def test_every_target_is_something_to_call(path: Path) -> None:
    for target in targets(OmegaConf.to_container(OmegaConf.load(path), resolve=False)):
        assert callable(get_object(target)), f"{target} in {path}"


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: str(path.relative_to(CONF)))
def test_every_config_says_first_what_it_is(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ") and len(first) > 10 or first == "# @package _global_", first


@pytest.mark.parametrize(("group", "choice"), CHOICES, ids=[f"{group}/{choice}" for group, choice in CHOICES])
def test_every_choice_composes_with_the_defaults(group: str, choice: str) -> None:
    accept((f"{CHOSEN_AS.get(group, group)}={choice}", *NEEDS.get((group, choice), ())))


def test_nothing_was_left_out() -> None:
    assert {path.parent.parent for path in YAMLS if path.parent.parent not in (CONF, ROOT)} <= {
        CONF / name for name in HYDRAS_OWN | OF_PARTS
    }
    folders = {path.name for path in CONF.iterdir() if path.is_dir()} - HYDRAS_OWN
    assert {group for group, _ in CHOICES} == folders
    found = {group: {c for g, c in CHOICES if g == group} for group in folders}
    assert found["model"] >= {"dlrm", "dlrm_small", "dlrm_large", "dlrm_mlperf", "dcn", "dcn_mlperf"}
    assert found["sharder"] >= {"torchrec", "torchrec_row_wise"}
    named = "local v100x16 a100x32 a100x64 a100x512 zionex_x16 h100 h100x8 h100x64 h100x512 h100x1024 h200x8 b200x8 gb200 clx64 skx8 spr"
    assert found["cluster"] >= set(named.split())
    assert found["data"] >= {"synthetic", "random", "criteo", "frappe"}
    assert found["logger"] >= {"wandb", "mlflow", "tensorboard", "csv", "none"}
    assert found["launcher"] >= {"local", "torchrun", "slurm", "kubernetes", "skypilot", "ray", "emulated"}
    assert found["experiment"] >= {"frappe"}
    assert sum(len(targets(OmegaConf.to_container(OmegaConf.load(path), resolve=False))) for path in YAMLS) >= 23
    assert len(CHOICES) >= 24


@pytest.mark.parametrize("command", SHOWN, ids=str)
def test_every_command_that_a_document_shows_is_accepted(command: Command) -> None:
    accept(command.arguments)


@pytest.mark.parametrize("command", MENTIONED, ids=str)
def test_every_command_that_a_config_mentions_is_accepted(command: Command) -> None:
    accept(command.arguments)


def test_the_documents_show_commands() -> None:
    assert len([command for command in SHOWN if command.file in ("README.md", "docs/examples.md")]) >= 10
    assert len(MENTIONED) >= 15


def test_the_reader_of_documents_finds_what_a_line_starts_with_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Run `python run.py model=dcn` at once.\n    python run.py -m model=a,b \\\n        seed=1  # two\n"
        "torchrun --nproc_per_node 4 run.py model=dcn\n    python run.py 'x.y={a: b}' && ls\n"
    )
    assert [(c.line, c.arguments) for c in shown_commands(page, tmp_path)] == [
        (2, ("-m", "model=a,b", "seed=1")),
        (4, ("model=dcn",)),
        (5, ("x.y={a: b}",)),
    ]
    assert [c.arguments for c in mentioned_commands(page, tmp_path)][:1] == [("model=dcn",)]
