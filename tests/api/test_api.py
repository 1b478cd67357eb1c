"""The package from Python: light to import, the same figures as the command line, mistakes as exceptions."""

from __future__ import annotations

import doctest
import importlib
import inspect
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

import recsys_lab
from recsys_lab import api
from recsys_lab.config.choices import built
from recsys_lab.data import torchrec_tables
from recsys_lab.errors import UserError
from recsys_lab.interop import torchrec_plans
from recsys_lab.record.result import write_result
from tests.record.fake_run import make_result

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("model=dcn_mlperf", "data=random", "cluster=h100x64", "sharder=torchrec_row_wise")


def test_the_import_is_light() -> None:
    """A program that only imports the package loads nothing that takes time; its functions are there by name."""
    said = "import sys, recsys_lab; print(*sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'numpy', 'hydra', 'pandas'}))"
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
    assert set(recsys_lab.FUNCTIONS) <= set(dir(recsys_lab))
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        recsys_lab.simulat  # noqa: B018


@pytest.mark.long
def test_a_second_simulation_takes_less_than_two_seconds() -> None:
    """In a process of its own: for the first call a child process counts the model's work, where the cache does not hold it."""
    says = "import sys, time, recsys_lab\n"
    says += f"words = {WORDS!r}\n"
    says += "assert 'torch' not in sys.modules\n"
    says += "first = recsys_lab.simulate(*words)\n"
    says += "for _ in range(3):\n    began = time.perf_counter(); again = recsys_lab.simulate(*words); took = time.perf_counter() - began\n"
    says += "    assert again == first and again.world_size == 64\n    print(took)"
    done = subprocess.run([sys.executable, "-c", says], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert min(map(float, done.stdout.split())) < 2, done.stdout


def test_a_room_with_the_name_of_a_function_is_both() -> None:
    import recsys_lab.simulate.costs

    assert inspect.ismodule(recsys_lab.simulate) and recsys_lab.simulate.costs.__name__ == "recsys_lab.simulate.costs"
    with pytest.raises(UserError, match="'dcm'|dcm"):
        recsys_lab.simulate("model=dcm")


#: Where users' functions are.
PUBLIC = {
    **{f"recsys_lab.{name}": getattr(importlib.import_module(module), name) for name, module in recsys_lab.FUNCTIONS.items()},
    **{f"torchrec_plans.{name}": getattr(torchrec_plans, name) for name in torchrec_plans.__all__},
    "table_file": torchrec_tables.table_file,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_function_says_what_it_takes_gives_and_raises_and_its_example_is_right(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples of torchrec_plans are of the model of docs/torchrec.md."""
    monkeypatch.chdir(tmp_path)
    function, known = PUBLIC[name], {"json": json}
    text = inspect.getdoc(function) or ""
    words = [word for word in inspect.signature(function).parameters if f"{word}:" not in text and f"{word}, " not in text]
    assert not words, f"{name} does not say what {words} are"
    assert "\nArgs:\n" in text and "\nReturns:\n" in text and ("\nRaises:\n" in text or name == "table_file")
    if not name.startswith("recsys_lab."):
        block = (ROOT / "docs" / "torchrec.md").read_text().partition("```python\n")[2].partition("```")[0]
        exec(compile(block, "docs/torchrec.md", "exec"), known)
    (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={**vars(sys.modules[function.__module__]), **known})
    said = io.StringIO()
    assert example.examples and doctest.DocTestRunner().run(example, out=said.write).failed == 0, said.getvalue()


def test_the_same_figures_as_a_run_of_the_same_words(tmp_path: Path) -> None:
    experiment = recsys_lab.compose(*WORDS, "mode=simulate", logger="none")
    priced = recsys_lab.simulate(experiment)
    made = recsys_lab.run(*WORDS, "mode=simulate", logger="none", folder=tmp_path / "my runs, here" / "one")
    assert made.result["simulated"]["iteration_ms"] == priced.iteration_ms
    assert made.result["plan_fingerprint"] == recsys_lab.plan(experiment).plan.fingerprint
    slower = replace(experiment, cluster=built("cluster", "a100x64"))
    assert recsys_lab.simulate(slower).iteration_ms > priced.iteration_ms
    (row,) = recsys_lab.load(tmp_path / "my runs, here" / "one").to_dict("records")
    assert (row["simulated.iteration_ms"], row["choices.sharder"]) == (priced.iteration_ms, "torchrec_row_wise")
    assert recsys_lab.load(tmp_path / "my runs, here").to_dict("records") == [row]
    with pytest.raises(api.RunFailed, match="exit code 2") as failed:
        recsys_lab.run(*WORDS, "mode=simulate", "seed=7", logger="none", folder=tmp_path / "my runs, here" / "one")
    assert failed.value.exit_code == 2 and failed.value.reason.startswith(f"{tmp_path / 'my runs, here' / 'one'}: another run lies here")
    assert "\n" not in str(failed.value)


def test_a_folder_of_sweeps_loads_without_what_is_superseded_hidden_linked_or_too_deep(tmp_path: Path) -> None:
    runs = ["alone", "sweep_a/0", "sweep_a/1", "project/sweep_b/0"]
    for name in (*runs, "sweep_a/superseded/0-1", ".trash/0", "sweep_a/1/checkpoints/kept", "a/b/c/too_deep"):
        write_result(tmp_path / name, make_result())
    (tmp_path / "latest").symlink_to(tmp_path / "sweep_a")
    folders = recsys_lab.load(tmp_path).folder.tolist()
    assert folders == [str(tmp_path / name) for name in sorted(runs)]
    assert len(recsys_lab.load(tmp_path / "sweep_a")) == 2 and len(recsys_lab.load(tmp_path / "sweep_a/superseded")) == 1
    with pytest.raises(UserError, match="up to 3 levels down"):
        recsys_lab.load(tmp_path / "a" / "nothing")


def test_an_explanation_has_a_line_a_table() -> None:
    told = recsys_lab.explain(*WORDS[:3], sharder="neo_4d")
    assert len(told.tables) == 26 and told.alternatives and "No plan can be below" in str(told)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: recsys_lab.compose("model=dcn,dlrm", "-m"), "compose: one run is needed, not a sweep"),
        (lambda: recsys_lab.run("-m", "seed=1,2"), "one run is needed, not a sweep.*python run.py -m"),
        (lambda: recsys_lab.plan(recsys_lab.compose(), "seed=2"), "words beside an experiment; given seed=2"),
        (lambda: recsys_lab.load("nowhere"), "nowhere: no run lies here"),
        (lambda: recsys_lab.compose(seed=-1), "seed"),
        (lambda: recsys_lab.compose(["model=dcn"]), "compose: a word is text such as 'model=dcn'; given list"),
        (lambda: recsys_lab.plan(None), "a word is text.*given None"),
        (lambda: recsys_lab.decide(recsys_lab.compose), "decide: a word is text.*given function"),
        (lambda: recsys_lab.plan("model=dcn", "data=random", given="plan.json"), "given: a plan is needed; given str; allowed: a Shard"),
        (
            lambda: recsys_lab.simulate(replace(recsys_lab.compose(), cluster="h100x64")),
            "experiment.cluster: no such part.*given h100x64; allowed: Cluster; compose the words",
        ),
        (lambda: recsys_lab.run("mode=plan", folder=5), "run folder: a path is needed; given int"),
        (lambda: recsys_lab.load(""), "load: a path is needed; given an empty text"),
        (lambda: recsys_lab.load(None), "load: a path is needed; given NoneType"),
    ],
)
def test_a_mistake_is_one_line(call, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_composed_experiment_leaves_no_job_of_hydras_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning would start other ranks with words of Hydra's in their arguments."""
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    recsys_lab.compose(*WORDS)
    assert not HydraConfig.initialized()
    with pytest.raises(UserError):
        recsys_lab.compose("model=dcm")
    assert not HydraConfig.initialized()
