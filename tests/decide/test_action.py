"""The GitHub Action: its entry script in a repository whose tables grow, and what action.yml hands to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github" / "actions" / "decide"
WORDS = (
    "model=tables model.file=tables.csv clusters=h100x8:2 batch=65536 sharders=torchrec_row_wise precisions=fp32 optimizers=adam "
    "profiles=torchrec"
)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, rows: int) -> str:
    (folder / "tables.csv").write_text(f"name,rows,dim,mean_ids\na,{rows},64,20\nb,1000,64,1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "tables")
    return git(folder, "rev-parse", "HEAD")


def entry(folder: Path, base: str, most: str = "") -> tuple[int, str, str]:
    """Exit code, what stands in the summary, stderr."""
    summary = folder.parent / f"{folder.name}_summary"
    given = {"WORDS": WORDS, "BASE": base, "MAX_INCREASE": most, "GITHUB_STEP_SUMMARY": str(summary), "PYTHONPATH": str(ROOT)}
    line = [sys.executable, str(ACTION / "entry.py")]
    done = subprocess.run(line, cwd=folder, env=os.environ | given, capture_output=True, text=True, check=False)
    return done.returncode, summary.read_text(), done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def test_a_table_that_grows_is_compared_with_the_base(repository: Path) -> None:
    base = commit(repository, 1_000_000)
    commit(repository, 100_000_000)
    code, summary, err = entry(repository, base, "5%")
    assert code == 5, err
    assert "the best row grew" in summary and "| GB of the fullest device |" in summary and "the best row grew" in err
    assert git(repository, "status", "--short") == "" and git(repository, "worktree", "list").count("\n") == 0  # nothing is left


@pytest.mark.long
def test_without_a_base_the_answer_stands_alone(repository: Path) -> None:
    (repository / "README").write_text("no tables yet\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "begin")
    base = git(repository, "rev-parse", "HEAD")
    commit(repository, 1_000_000)
    code, summary, err = entry(repository, base)
    assert code == 0, err
    assert "Best: h100x8 torchrec_row_wise fp32 adam" in summary and "No answer of the base: error: model.file=tables.csv" in summary


def test_a_mistake_in_the_words_is_the_commands_line_and_code(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(repository, 1_000_000)
    monkeypatch.setitem(globals(), "WORDS", "model=tables model.file=none.csv clusters=h100x8:2 batch=65536")
    code, summary, err = entry(repository, "no-such-commit")
    assert code == 2 and err.count("\n") == 1 and "none.csv" in summary and "git has no files of no-such-commit" in summary


def test_action_yml_hands_its_inputs_to_the_script() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    install, step = action["runs"]["steps"]
    assert action["runs"]["using"] == "composite" and step["run"] == 'python "$GITHUB_ACTION_PATH/entry.py"'
    assert set(step["env"]) == {"WORDS", "BASE", "MAX_INCREASE"} and set(action["inputs"]) == {"words", "base", "max-increase", "install"}
    assert (ACTION / "../../..").resolve() == ROOT and "$GITHUB_ACTION_PATH/../../..[cpu]" in install["run"]
