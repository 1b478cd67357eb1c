"""What is offered for a word, from small folders of choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_lab.config import options
from recsys_lab.config.completion import TYPED, offered
from recsys_lab.config.schema import PLAIN
from recsys_lab.config.yaml_comments import GROUPS

FILES = {
    "config.yaml": """
        defaults:
          - sharder/common/stores@sharder
          - sharder: plain
          - profile@simulate.profile: slow
          - model: wide
          - nobody/nowhere: x
          - _self_
          - experiment: null
        seed: 7
        mode: auto
        name: here
        place: ${seed}
        baselines: true
        resume: null
        simulate:
          batch_size: 4
        ablation: {}
        hydra:
          run: 5
        """,
    "sharder/common/stores.yaml": "store: auto\nkept: 1\n",
    "sharder/plain.yaml": """
        planner:
          _target_: a.Planner
          order: up # up | down | any-way: how rows go
        kept: 2
        """,
    "profile/slow.yaml": "rate: 3 # slow | fast is no start of a line\n",
    "profile/fast.yaml": "rate: 5\nextra: 1\n",
    "model/wide.yaml": """
        _target_: a.Wide
        width: 16
        deep: {layers: [1, 2], rate: 0.5}
        words: [a]
        none: null
        empty: {}
        """,
    "model/wider.yaml": """
        defaults:
          - wide
          - part@inner: small
          - other@inner: small
          - part@_global_.seed: small
          - override /profile@_global_.simulate.profile: fast
          - _self_
        width: 32
        deep: {depth: 2}
        inner: {own: 1}
        """,
    "model/part/small.yaml": "size: 1\nfrom_part: 2\n",
    "model/other/small.yaml": "size: 3\nfrom_other: 4\n",
    "model/whole.yaml": "# @package _global_\nmodel:\n  width: 1\n  own: 2\nseed: 3\n",
    "experiment/first.yaml": "seed: 2\n",
    "experiment/paper/second.yaml": "seed: 2\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")
    return folder


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return written(tmp_path / "conf", FILES)


def choose(group: str) -> str:
    return "profile@simulate.profile" if group == "profile" else group


def test_the_first_word_is_a_group_or_a_key(conf: Path) -> None:
    """Also of what has no keys; Hydra's own node is nobody's."""
    keys = {"seed=", "mode=", "name=", "place=", "baselines=", "resume=", "simulate.", "ablation=", "sharder.", "model."}
    assert set(offered([conf], [], "")) == {f"{choose(group)}=" for group in GROUPS} | keys
    assert offered([conf], [], "s") == ["seed=", "sharder.", "sharder=", "simulate."]


@pytest.mark.parametrize(
    ("words", "word", "names"),
    [
        ([], "model.", ["deep.", "empty=", "none=", "width=", "words="]),
        ([], "model.deep.", ["deep.layers=", "deep.rate="]),
        ([], "model.deep.r", ["deep.rate="]),
        ([], "model.width.", []),
        ([], "model.nothing.x", []),
        (["model=wider"], "model.", ["deep.", "empty=", "inner.", "none=", "width=", "words="]),
        (["model=wider"], "model.deep.", ["deep.depth=", "deep.layers=", "deep.rate="]),
        (["model=wider"], "model.inner.", ["inner.from_other=", "inner.from_part=", "inner.own=", "inner.size="]),
        (["model=wider,wide"], "model.deep.", ["deep.depth=", "deep.layers=", "deep.rate="]),
        (["model=wide,wider"], "model.deep.", ["deep.layers=", "deep.rate="]),
        (["model=whole"], "model.", ["own=", "width="]),
        (["model=nothing"], "model.", []),
        (["-m", "model", "model=wider", "seed=a=b"], "model.deep.d", ["deep.depth="]),
    ],
)
def test_keys_are_of_the_choice_that_is_made(conf: Path, words: list[str], word: str, names: list[str]) -> None:
    assert offered([conf], words, word) == [f"model.{name}" for name in names]


def test_keys_of_a_group_that_stands_elsewhere(conf: Path) -> None:
    assert offered([conf], [], "simulate.") == ["simulate.batch_size=", "simulate.profile."]
    assert offered([conf], [], "simulate.profile.") == ["simulate.profile.rate="]
    of_fast = ["simulate.profile.extra=", "simulate.profile.rate="]
    assert offered([conf], ["profile@simulate.profile=fast"], "simulate.profile.") == of_fast
    assert offered([conf], ["model=wider"], "simulate.profile.") == of_fast  # which the model brings
    chosen = ["profile@simulate.profile=slow", "model=wider"]
    assert offered([conf], chosen, "simulate.profile.") == ["simulate.profile.rate="]


def test_a_choice_stands_on_what_every_choice_of_its_group_has(conf: Path) -> None:
    assert offered([conf], [], "sharder.") == ["sharder.kept=", "sharder.planner.", "sharder.store="]
    assert offered([conf], [], "sharder.kept=") == ["sharder.kept=2"]


@pytest.mark.parametrize(
    ("words", "word", "values"),
    [
        ([], "model=", ["whole", "wide", "wider"]),
        ([], "model=wid", ["wide", "wider"]),
        ([], "model=wide,", ["wide,whole", "wide,wide", "wide,wider"]),
        ([], "model=a,b,whol", ["a,b,whole"]),
        ([], "experiment=", ["first", "paper/second"]),
        ([], "profile@simulate.profile=", ["fast", "slow"]),
        ([], "sharder=", ["plain"]),
        ([], "logger=", []),
        ([], "profile=", []),
        ([], "seed=", ["7"]),
        ([], "name=", ["here"]),
        ([], "place=", []),
        ([], "resume=", []),
        ([], "mode=", ["auto", "plan", "simulate", "train"]),
        ([], "mode=auto,p", ["auto,plan"]),
        ([], "baselines=", ["false", "true"]),
        ([], "overwrite=t", ["true"]),
        ([], "model.width=", ["16"]),
        (["model=wider"], "model.width=", ["32"]),
        (["model=wider"], "model.inner.size=", ["3"]),
        (["model=wider"], "model.deep.rate=", ["0.5"]),
        ([], "model.words=", []),
        ([], "model.deep=", []),
        ([], "model.nothing=", []),
        ([], "sharder.store=host_", ["host_cached"]),
        ([], "sharder.planner.order=", ["any-way", "down", "up"]),
        ([], "sharder.executor.overlap=", ["false", "true"]),
        ([], "simulate.profile.rate=", ["3"]),
        ([], "simulate.hot_rows=", ["false", "true"]),
        ([], "optimizer.dense.name=", list(options.DENSE_OPTIMIZERS)),
        ([], "optimizer.schedule.name=l", ["linear"]),
        ([], "optimizer.schedule.name.x=", []),
        ([], "trainer.early_stopping.metric=n", ["ndcg_10", "ne"]),
        ([], "trainer.restore_best=", ["false", "true"]),
        ([], "trainer.max_epochs=", []),
        ([], "ablation.prune.metric=a", ["auc"]),
    ],
)
def test_values(conf: Path, words: list[str], word: str, values: list[str]) -> None:
    key = word.partition("=")[0]
    assert offered([conf], words, word) == sorted(f"{key}={value}" for value in values)


def test_the_users_own_folder_comes_after_the_built_in_one(conf: Path, tmp_path: Path) -> None:
    """A file of theirs stands for ours of the same name."""
    mine = {
        "model/mine.yaml": "defaults: [wide]\nmine: 1\n",
        "model/wider.yaml": "theirs: soft # soft | hard\n",
        "experiment/a/b/c.yaml": "seed: 1\n",
    }
    confs = [conf, written(tmp_path / "own", mine)]
    assert offered(confs, [], "model=m") == ["model=mine"]
    assert offered(confs, ["model=mine"], "model.m") == ["model.mine="]
    assert "model.width=" in offered(confs, ["model=mine"], "model.")
    assert offered(confs, ["model=wider"], "model.") == ["model.theirs="]
    assert offered(confs, ["model=wider"], "model.theirs=") == ["model.theirs=hard", "model.theirs=soft"]
    assert offered(confs, [], "experiment=a") == ["experiment=a/b/c"]


def test_a_choice_that_takes_itself_has_its_own_keys(conf: Path, tmp_path: Path) -> None:
    mine = {"model/one.yaml": "defaults: [two]\na: 1\n", "model/two.yaml": "defaults: [one, nothing]\nb: 1\n"}
    confs = [conf, written(tmp_path / "own", mine)]
    assert offered(confs, ["model=one"], "model.") == ["model.a=", "model.b="]


def test_what_is_no_mapping_has_no_keys(conf: Path, tmp_path: Path) -> None:
    mine = {"model/list.yaml": "[1]\n", "model/word.yaml": "x\n", "model/bare.yaml": "defaults: 5\na: 1\n"}
    confs = [conf, written(tmp_path / "own", mine)]
    assert [offered(confs, [f"model={name}"], "model.") for name in ("list", "word", "bare")] == [[], [], ["model.a="]]


def test_every_group_of_typed_options_is_completed() -> None:
    """Those without a `_target_`, whose dataclasses import nothing."""
    assert PLAIN | {"sharder.executor": options.ExecutorOptions} == TYPED
