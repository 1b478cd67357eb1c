"""A wheel carries all that a run needs, and its command works from any folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import recsys_lab

ROOT = Path(__file__).resolve().parents[2]
#: An experiment in one line, with a shorter training.
LINE = ["model=dcn", "sharder=dmt", "cluster=h100x64", "trainer.max_steps=4", "baselines=false"]
SOURCES = (
    "conf/config.yaml",
    "conf/cluster/h100x64.yaml",
    "launchers/local.py",
    "launchers/kubernetes.yaml.j2",
    "hydra_plugins/recsys_lab_search.py",
    "experiments/dmt/command.py",
    "requirements/cpu.txt",
    "run.py",
)


def done(*words: str | Path, folder: Path) -> str:
    """What the command prints; it must end well. A path of the caller's would come before what is installed."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([str(word) for word in words], cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as setuptools leaves folders behind; nothing is downloaded."""
    copy, into = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("recsys_lab", "conf", "launchers", "experiments", "hydra_plugins", "requirements"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("run.py", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy)
    build = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    done(sys.executable, *build, "--wheel-dir", into, ".", folder=copy)
    return next(into.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel, which sees the packages that this one has."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = Path(paths["scripts"], "python")
    quietly = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    done(python, "-m", "pip", "install", *quietly, wheel, folder=folder)
    return python.parent


def test_the_wheel_has_what_lies_beside_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"recsys_lab/checkout/{name}" for name in SOURCES} <= names
    assert {"recsys_lab/py.typed", "recsys_lab/kernels/csrc/bags.cpp", "recsys_lab/kernels/csrc/formats.h"} <= names
    for folder in ("conf", "launchers", "experiments"):
        kept = {f"recsys_lab/checkout/{path.relative_to(ROOT)}" for kind in ("*.yaml", "*.py") for path in (ROOT / folder).rglob(kind)}
        assert kept <= names
    for path in (ROOT / "recsys_lab").rglob("*"):
        assert path.is_dir() or "__pycache__" in path.parts or str(path.relative_to(ROOT)) in names
    assert {name.split("/")[0] for name in names} == {"recsys_lab", f"recsys_lab-{recsys_lab.__version__}.dist-info"}


def test_an_installed_wheel_simulates_trains_and_reports_from_any_folder(environment: Path, tmp_path: Path) -> None:
    where = done(environment / "python", "-c", "import recsys_lab; print(recsys_lab.__file__)", folder=tmp_path)
    assert str(environment.parent) in where
    out = done(environment / "recsys-lab", "run", *LINE, folder=tmp_path)
    assert " simulated  h100x64: " in out and " measured  " in out
    (run,) = (tmp_path / "runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "completed" and result["simulated"] and result["measured"]
    assert (run / "report.html").stat().st_size and list((run / "checkpoints").iterdir())
    assert "h100x64" in done(environment / "recsys-lab", "show", "runs/" + run.name, folder=tmp_path)


def test_an_installed_wheel_names_the_command_that_it_brings(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as kept:
        texts = {name: kept.read(name).decode() for name in kept.namelist() if "/checkout/conf/" in name}
    assert [name for name, text in texts.items() if "python run.py" in text] == []
    (help_page,) = (text for name, text in texts.items() if name.endswith("conf/hydra/help/recsys_lab.yaml"))
    assert "    recsys-lab run [group=choice ...] [key=value ...]" in help_page


def test_an_installed_command_lists_the_studies_and_how_to_run_them(environment: Path, tmp_path: Path) -> None:
    assert "recsys-lab run experiment=neo/..." in done(environment / "recsys-lab", "studies", folder=tmp_path)
    listed = json.loads(done(environment / "recsys-lab", "studies", "--json", folder=tmp_path))["studies"]
    commands = [item["command"] for item in listed if item["command"]]
    assert commands and all(command.startswith("recsys-lab run experiment=") for command in commands)


def test_an_installed_package_is_called_from_a_program_of_the_users(environment: Path, tmp_path: Path) -> None:
    """Whose own modules may have the names of ours."""
    for name in ("run.py", "experiments.py"):
        (tmp_path / name).write_text("OWN = True\n")
    calls = "import recsys_lab\nassert recsys_lab.compose('model=dcn', cluster='h100x64').cluster.world_size == 64\n"
    calls += "import experiments, run\nassert experiments.OWN and run.OWN\n"
    calls += "made = recsys_lab.run('mode=plan', 'model=dcn', 'data=random', 'sharder=torchrec_row_wise', logger='none', folder='my run')\n"
    calls += "print(made.result['status'])\n"
    assert done(environment / "python", "-c", calls, folder=tmp_path).endswith("completed\n")


def test_an_installed_command_answers_help_in_half_a_second(environment: Path, tmp_path: Path) -> None:
    """At least once of twenty times: it has a core of its own only where other tests leave it one."""
    took: list[float] = []
    while len(took) < 20 and min(took, default=1.0) >= 0.5:
        began = time.perf_counter()
        out = done(environment / "recsys-lab", "--help", folder=tmp_path)
        took.append(time.perf_counter() - began)
    assert out.startswith("usage: recsys-lab COMMAND") and "\n  run " in out and "\n  flexshard " in out
    assert min(took) < 0.5, took


def test_the_extras_are_the_lines_of_the_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def lines(name: str) -> list[str]:
        found = (line.split("#")[0].strip() for line in (ROOT / "requirements" / name).read_text().splitlines())
        return sorted(line for line in found if line)

    cpu = [line for line in extras["cpu"] if not line.startswith("fbgemm-gpu==")]  # `make env` installs the lock without dependencies
    ours = [*project["dependencies"], *cpu, *extras["slurm"], *extras["test"]]
    assert sorted(ours) == lines("cpu.in")
    assert extras["docs"] == lines("docs.in")
    assert sorted(extras["notebook"]) == lines("notebook.in")
    both = [{line.split("==")[0].lower() for line in lines(name)} for name in ("cpu.txt", "notebook.txt")]
    assert set(extras["notebook"]) <= both[0] | both[1] and not both[0] & both[1]  # nothing of the lock is replaced
    assert extras["wandb"] == ["wandb"]  # for those who bring their own torch
    assert [*extras["mlflow"], *extras["ray"]] == lines("ecosystem.in")
    assert [line.replace("fbgemm-gpu==", "fbgemm-gpu-cpu==") for line in extras["cuda"]] == cpu


def test_what_tests_of_the_ecosystem_install_is_beside_the_lock_and_not_in_place_of_it() -> None:
    def names(file: str) -> set[str]:
        lines = (ROOT / "requirements" / file).read_text().splitlines()
        return {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line and not line.startswith("#")}

    assert {"mlflow", "ray"} <= names("ecosystem.txt")
    assert names("ecosystem.txt") & (names("cpu.txt") | names("cuda.txt")) == set()
