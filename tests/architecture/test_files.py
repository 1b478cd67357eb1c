"""What no file of the repository may hold: paths of one machine, addresses of package registries, too many lines without a reason."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Put together here, so that this file does not hold them either.
MACHINE_PATHS = re.compile(r"(?<![\w.$}~])/(?:" + "|".join(("work", "root", "home", "Users")) + r")(?:/|\b(?=[\s\"'`:,)]))")
REGISTRIES = re.compile(
    r"pypi\.(?:org|python)|files\.python" + r"hosted|download\.py" + r"torch|(?:extra-)?index-url[ =]+http", re.IGNORECASE
)
LONGEST_LINES = 400
COUNTED = {".py", ".md", ".yaml", ".sh", ".toml"}
LONG_BECAUSE = "long because"


def repository_files() -> list[Path]:
    """What git holds or would take; without git, everything but what is generated."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return sorted(path for name in done.stdout.splitlines() if (path := ROOT / name).is_file())
    generated = {".git", ".venv", "runs", "multirun", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "wandb"}
    return sorted(path for path in ROOT.rglob("*") if path.is_file() and not generated & set(path.relative_to(ROOT).parts))


def text_of(path: Path) -> str | None:
    """Its text, or None of a binary file."""
    content = path.read_bytes()
    return None if b"\0" in content else content.decode("utf-8")


def findings(pattern: re.Pattern[str], text: str) -> list[str]:
    return [f"line {number}: {line.strip()[:120]}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRIES], ids=["machine_paths", "registries"])
def test_no_file_names_this_machine_or_a_registry(pattern: re.Pattern[str]) -> None:
    files = repository_files()
    assert len(files) > 100
    found = {str(path.relative_to(ROOT)): lines for path in files if (text := text_of(path)) and (lines := findings(pattern, text))}
    assert found == {}


def test_a_long_file_says_at_its_top_why() -> None:
    def unexplained(path: Path) -> bool:
        lines = (text_of(path) or "").splitlines()
        return len(lines) > LONGEST_LINES and LONG_BECAUSE not in " ".join(lines[:15]).lower()

    assert [str(path.relative_to(ROOT)) for path in repository_files() if path.suffix in COUNTED and unexplained(path)] == []


@pytest.mark.parametrize(
    ("pattern", "text", "wrong"),
    [
        (MACHINE_PATHS, "cd /" + "work/main", True),
        (MACHINE_PATHS, "'/" + "root'", True),
        (MACHINE_PATHS, "see /" + "home/me/x", True),
        (MACHINE_PATHS, "the network/work share, data/" + "root/x, ~/" + "work/x, /workers/2", False),
        (REGISTRIES, "https://py" + "pi.org/simple", True),
        (REGISTRIES, "--index-" + "url https://x", True),
        (REGISTRIES, "torch builds at https://download.py" + "torch.org/whl", True),
        (REGISTRIES, "PIP_EXTRA_INDEX_URL names an index", False),
    ],
)
def test_the_patterns_find_what_they_should(pattern: re.Pattern[str], text: str, wrong: bool) -> None:
    assert bool(findings(pattern, text)) == wrong


def test_a_script_of_an_experiment_starts_by_its_path() -> None:
    """`python experiments/benchmarks/mlp.py` has its own folder on the path: the script adds the checkout before it imports ours."""
    ours = re.compile(r"^from (experiments|launchers|recsys_lab)\b", re.MULTILINE)
    scripts = [path for name in ("benchmarks", "reliability") for path in (ROOT / "experiments" / name).glob("*.py")]
    started = {path.name: text for path in scripts if '__name__ == "__main__"' in (text := path.read_text())}
    assert {"mlp.py", "kills.py", "fuzz.py", "embedding_kernels.py"} <= set(started)
    before = {name: ours.split(text, maxsplit=1)[0] for name, text in started.items() if ours.search(text)}
    assert [name for name, text in before.items() if "sys.path.insert(0, str(" not in text] == []
