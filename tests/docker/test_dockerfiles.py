"""What can be said of the Dockerfiles without Docker: what they copy, call and promise is there."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.__main__ import COMMANDS
from tests.architecture.test_files import repository_files

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


def instructions(file: Path) -> list[tuple[str, str]]:
    """(instruction, its words), comments left out and continued lines joined."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(words[0], " ".join(words[1:])) for words in map(str.split, joined) if words]


def said(file: Path, instruction: str) -> list[str]:
    return [words for name, words in instructions(file) if name == instruction]


def is_ignored(path: str) -> bool:
    """Whether .dockerignore keeps `path`, relative to the checkout, out of the image: itself, or a folder that it is in."""
    parts = Path(path).parts
    upper = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return any(fnmatch.fnmatch(at, p) or (p.startswith("**/") and fnmatch.fnmatch(Path(at).name, p[3:])) for at in upper for p in IGNORED)


def test_there_is_one_for_each_lock() -> None:
    assert [file.name for file in FILES] == ["cpu.Dockerfile", "cuda.Dockerfile"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_exists_and_is_not_ignored(file: Path) -> None:
    sources = [word for words in said(file, "COPY") for word in words.split()[:-1] if not word.startswith("--")]
    assert sources == ["Makefile", "requirements", "."]
    for source in sources:
        assert (ROOT / source).exists() and not is_ignored(source)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_python_lock_and_command_are_the_readmes(file: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (image,) = said(file, "FROM")
    assert (version := re.match(r"python:(\d+\.\d+)-slim", image)) and f"Python {version[1]}," in readme
    assert f"python{version[1]}" in (ROOT / "requirements" / "make_env.sh").read_text()
    (lock,) = re.findall(r"make env LOCK=(\w+)", " ".join(said(file, "RUN")))
    assert lock == file.stem.split(".")[0] and (ROOT / "requirements" / f"{lock}.txt").is_file()
    assert re.search(r"^env:.*LOCK=cpu\|cuda", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (command,) = map(json.loads, said(file, "CMD"))
    assert command[:3] == ["python", "-m", "recsys_lab"] and command[3] in COMMANDS
    assert f"{' '.join(command)}`" in readme.replace(".venv/bin/", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_page_shows_the_lines_at_the_top_of_each(file: Path) -> None:
    page = (ROOT / "docs" / "docker.md").read_text()
    shown = [line[4:] for line in file.read_text().splitlines() if line.startswith("#   docker ")]
    assert len(shown) == 2 and all(f"    {line}\n" in page for line in shown)
    assert f"docker/{file.name}" in shown[0] and shown[1].endswith("python run.py")
    assert said(file, "WORKDIR") == ["/recsys_lab"] and "runs:/recsys_lab/runs" in shown[1]
    assert said(file, "USER") == ["1000"]


def test_what_git_ignores_is_no_part_of_an_image() -> None:
    generated = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    assert [name for name in generated if not is_ignored(name.replace("*", "x"))] == []


def test_the_files_of_an_image_are_enough_to_plan_a_run(tmp_path: Path) -> None:
    kept = [path.relative_to(ROOT) for path in repository_files() if not is_ignored(str(path.relative_to(ROOT)))]
    assert Path("run.py") in kept and not is_ignored("tests/docker/test_dockerfiles.py") and is_ignored("runs/one/result.json")
    for path in kept:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    words = ["run.py", "mode=plan", "model=dlrm", "cluster=h100x8", "data=random", "logger=none", "hydra.run.dir=runs/one"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "runs" / "one" / "plan.json").is_file()


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not on the path: docs/docker.md says where it is from")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_hadolint_finds_nothing(file: Path) -> None:
    done = subprocess.run(["hadolint", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
