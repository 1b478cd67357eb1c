"""A config is resolved once, into values that have types, travel to the ranks and cannot change."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass

import pytest

from recsys_lab.config.command_line import CONF
from recsys_lab.config.options import ExecutorOptions
from recsys_lab.errors import UserError
from recsys_lab.executor.shard import shard
from recsys_lab.experiment import Experiment, of_words

SHARDERS = sorted(path.stem for path in (CONF / "sharder").glob("*.yaml"))
#: Those whose facts are keys; the others read theirs from a file (tests/tables/test_table_file.py).
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if "\nfile:" not in path.read_text())


def of(*words: str) -> Experiment:
    return of_words(words, where="test")


def test_the_options_of_the_executor_are_its_keyword_only_arguments() -> None:
    own = {p.name: p.default for p in inspect.signature(shard).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert asdict(ExecutorOptions()) == own


@pytest.mark.parametrize("sharder", SHARDERS)
def test_every_sharder_travels_to_the_ranks(sharder: str) -> None:
    experiment = of(f"sharder={sharder}", "cluster=h100x64")
    there: Experiment = pickle.loads(pickle.dumps(experiment))  # noqa: S301  our own
    same = [f.name for f in fields(Experiment) if f.name not in ("model", "data", "sharder", "launcher", "logger")]
    assert [getattr(there, name) for name in same] == [getattr(experiment, name) for name in same]
    assert (there.sharder.planner, there.sharder.executor) == (experiment.sharder.planner, experiment.sharder.executor)
    assert there.model == experiment.model
    assert experiment.sharder.executor.pipeline == experiment.config["sharder"]["executor"]["pipeline"]


@pytest.mark.parametrize("model", MODELS)
def test_the_facts_of_every_model_are_its_keys(model: str) -> None:
    experiment = of(f"model={model}", "mode=simulate", "data=random")
    keys, facts = experiment.config["model"], experiment.model
    for name in ("embedding_dim", "dims", "rows", "lengths", "groups", "law", "dense_features", "objective"):
        fact = getattr(facts, name)
        assert (asdict(fact) if is_dataclass(fact) else fact) == keys.get(name), name
    features = facts.features()
    assert (features is None) == (keys["rows"] is None)
    if features is not None:
        assert [feature.rows for feature in features] == keys["rows"]
        assert {feature.pooling for feature in features} == {"none" if "objective" in keys else "sum"}


def test_an_experiment_does_not_change() -> None:
    experiment = of()
    with pytest.raises(FrozenInstanceError):
        experiment.seed = 2  # type: ignore[misc]


def test_a_sweep_is_no_experiment() -> None:
    with pytest.raises(UserError, match="one run is needed, not a sweep"):
        of("--help")


def test_data_without_a_table_are_refused() -> None:
    experiment = of("data=random", "data.rows_per_table=[]")
    with pytest.raises(UserError, match="data: no tables to place: the data have no categorical feature"):
        experiment.tables(experiment.open_data())
