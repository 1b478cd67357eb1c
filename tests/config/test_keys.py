"""Which groups, choices and keys a line may name, and what of them is the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import initialize_config_dir

from recsys_lab.base.paths import CONF
from recsys_lab.config.composition import parsed
from recsys_lab.config.frozen import register_resolvers
from recsys_lab.config.keys import check_keys, composed_at_once, values_of
from recsys_lab.errors import UserError


@pytest.fixture(autouse=True)
def _of_conf() -> Iterator[None]:
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


FORCE = "sharder.planner.force"


@pytest.mark.parametrize(
    ("words", "free"),
    [
        (["model=dlrm", "seed=3", "model.dropout=0.5"], set()),
        ([f"{FORCE}.C1=row_wise"], {f"{FORCE}.C1=row_wise"}),
        ([f"{FORCE}={{C1:row_wise}}"], {f"{FORCE}={{C1:row_wise}}"}),
        ([f"+{FORCE}.C1=row_wise"], set()),
        (["+sharder.planner.anything=1"], set()),
        (["+anything=1"], set()),
        (["hydra.run.dir=x"], set()),
        (["model=dlrm,dcn", "model.dropout=0.1,0.2"], set()),
        (["sharder=dmt", "sharder.planner.permute=rows"], set()),  # a key of this choice alone
        (["experiment=neo/table3"], set()),
    ],
)
def test_what_is_there(words: list[str], free: set[str]) -> None:
    assert check_keys(parsed(words), []) == free


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["model=dlmr"], ["model: no such choice; given dlmr; allowed: ", "; did you mean 'dlrm'?"]),
        (["model=dlrm,dlmr"], ["model: no such choice; given dlmr"]),
        (["experiment=neo/tabel3"], ["experiment: no such choice", "neo/table3", "did you mean 'neo/table3'?"]),
        (["sharder=common"], ["sharder: no such choice"]),
        (["cluster=h10"], ["cluster: no such cluster; given h10"]),
        (["MODEL=dcn"], ["MODEL: no such key", "did you mean 'model'?"]),
        (["model=DCN"], ["model: no such choice; given DCN", "did you mean 'dcn'?"]),
        (["sed=1"], ["sed: no such key", "cluster, data", "did you mean 'seed'?"]),
        (["batch=64"], ["batch: no such key", "; did you mean data.batch_size or simulate.batch_size?"]),
        (["batch_size=64", "mode=simulate"], ["batch_size: no such key", "; did you mean data.batch_size or simulate.batch_size?"]),
        (["hosts=2"], ["hosts: no such key", "; did you mean cluster.hosts or launcher.hosts?"]),
        (["model.droput=1"], ["model.droput: no such key", "did you mean 'dropout'?"]),
        (["seed.x=1"], ["seed.x: no such key"]),
        (["model.dropout.x=1"], ["model.dropout.x: no such key"]),
        (["+seed.x=1"], ["seed.x: no such key"]),
        (["sharder.planner.forse.C1=1"], ["sharder.planner.forse: no such key", "did you mean 'force'?"]),
        (["sharder.planner.permute=rows"], ["sharder.planner.permute: no such key"]),  # of another choice
        (["choices=1"], ["choices: no such key", "sharder"]),
        (["+choices.model=1"], ["choices.model: no such key; allowed: ", "seed"]),
        (["model=null"], ["model: one choice is needed; given model=null; model=CHOICE; python run.py --help lists them"]),
        (["~model"], ["model: one choice is needed"]),
    ],
)
def test_what_is_not_there(words: list[str], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        check_keys(parsed(words), [])
    said = str(caught.value)
    assert said.startswith(parts[0]) and all(part in said for part in parts), said
    allowed = str(caught.value.parts["allowed"]).split(", ")
    assert "no such key" not in said or allowed == sorted(allowed)
    assert not {"choices", "_target_", "hydra"} & set(allowed), allowed


def test_choices_of_the_users_own_folder_are_left_to_hydra(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [dlrm]\nmy_key: 1\n")
    words = ["model=mine", "model.my_key=2"]
    where = f"hydra.searchpath=[file://{tmp_path}]"
    assert check_keys(parsed(words), [where]) == check_keys(parsed([*words, where]), []) == set()
    with pytest.raises(UserError, match="no such choice"):
        check_keys(parsed(words), [])
    with pytest.raises(UserError, match="Could not find 'model/yours'; allowed: .*dlrm, .*mine, .*; see python") as refused:
        check_keys(parsed(["model=yours"]), [where])
    assert "search path" not in str(refused.value)
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [nowhere]\n")
    with pytest.raises(UserError, match="In 'model/mine': Could not (find|load) 'model/nowhere'") as refused:
        check_keys(parsed(words), [where])
    assert "search path" not in str(refused.value)


@pytest.mark.parametrize(
    ("word", "composes"),
    [
        ("model=dlrm", True),
        ("model.dropout=0.5", True),
        ("model=dlrm,dcn", False),
        ("seed=range(1,3)", False),
        ("++model.dropout=0.5", False),
        ("+model.more=1", True),
        ("choices.model=dlrm", False),
        ("choices=1", False),
        ("model.droput=1", False),
        (f"{FORCE}.C1=row_wise", False),
    ],
)
def test_most_lines_are_composed_once(word: str, composes: bool) -> None:
    found = composed_at_once([word], parsed([word]), [])
    assert (found is not None) == composes
    if found is not None:
        assert found[0].seed == 1 and str(found[1]).startswith("runs/")


def test_a_group_has_one_choice_at_once() -> None:
    with pytest.raises(UserError, match="model: one choice is needed"):
        composed_at_once(["model=[dlrm]"], parsed(["model=[dlrm]"]), [])
    found = composed_at_once(["seed=2"], parsed(["seed=2"]), ["hydra.run.dir=there"])
    assert found is not None and (found[0].seed, found[1]) == (2, "there")


@pytest.mark.parametrize(
    ("word", "values"),
    [("a=1", ["1"]), ("a=b", ["b"]), ("a=1,2", ["1", "2"]), ("a=null", []), ("a=range(1,3)", []), ("a=choice(x,y)", ["x", "y"])],
)
def test_the_values_of_an_override(word: str, values: list[str]) -> None:
    assert list(values_of(parsed([word])[0])) == values
