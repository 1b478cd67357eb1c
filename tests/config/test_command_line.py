"""The command line is checked before Hydra acts: what is wrong is named, with the nearest right spelling."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError

from recsys_lab.config.arguments import override, with_quotes
from recsys_lab.config.command_line import Question, Sweep, read
from recsys_lab.config.frozen import differences, fingerprint, plain, save
from recsys_lab.config.schema import build
from recsys_lab.errors import UserError


def test_letters_beyond_ascii_need_no_quotes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read(["hydra.run.dir=é"]).folder == tmp_path / "é"
    assert read(["data=criteo", f"data.root={tmp_path}/josé/a b"]).config.data.root == f"{tmp_path}/josé/a b"
    assert read(["data=criteo", "data.root=/l'été, deux/x".replace(",", "\\,")]).config.data.root == "/l'été, deux/x"
    line = read(["-m", "data=criteo", "data.root=é,b"])
    assert [job[1] for job in line.jobs] == ["data.root='é'", "data.root=b"]


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("x=[é,b]", ["é", "b"]),
        ("x=[é , 1, [ü]]", ["é", 1, ["ü"]]),
        ("x=choice(é,b)", ["é", "b"]),
        ("x=é,b", ["é", "b"]),
        ("x='é,b'", "é,b"),
        ('x="é \\" b"', 'é " b'),
        ("x={a: é:ü, b: [ö], c: 'ä'}", {"a": "é:ü", "b": ["ö"], "c": "ä"}),
        ("x=é${seed}", "é${seed}"),
        ("x=é\\", "é\\"),
        ("+x@y.z=é\\,b", "é,b"),
        ("x=plain", "plain"),
    ],
)
def test_hydra_reads_letters_beyond_ascii_as_it_reads_others(word, means):
    [override] = OverridesParser.create().parse_overrides([with_quotes(word)])
    value = override.value()
    if override.is_sweep_override():
        value = [one.text if isinstance(one, QuotedString) else one for one in value.list]
    assert value == means


@pytest.mark.parametrize("word", ["é=1", "x={é: 1}", "~é", "x='é", "é"])
def test_keys_and_what_lacks_a_quote_stay_as_they_are(word):
    assert with_quotes(word) == word


@pytest.mark.parametrize("name", ["a\\", "a\\\\", "it's", "a b", "a,b=[c]", 'a"b', "é", "a${b}"])
def test_a_folder_is_told_to_hydra_as_it_is(name, tmp_path):
    assert read([override("hydra.run.dir", str(tmp_path / name))]).folder == tmp_path / name
    assert read(["-m", "seed=1,2", override("hydra.sweep.dir", str(tmp_path / name))]).common.hydra.sweep.dir == str(tmp_path / name)


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["seed=1", "--cfg", "job"], ("--cfg", "job", "++seed=1")),
        (["seed=1", "--info"], ("--info", "all", "seed=1")),
        (["--config-dir", "conf", "seed=1", "-h", "mode=plan"], ("--help", "--config-dir", "conf", "seed=1", "mode=plan")),
    ],
)
def test_hydras_options_stand_anywhere(words, ordered):
    assert read(words) == Question(ordered)


def test_what_runs_cannot_change():
    config = read(["model=dlrm", "seed=3"]).config
    with pytest.raises(ReadonlyConfigError):
        config.seed = 4
    assert config.choices.model == "dlrm"


def test_a_fingerprint_is_of_what_the_fields_say_in_any_order():
    one = {"seed": 3, "model": {"name": "dlrm", "dim": 4}}
    other = {"model": {"dim": 4, "name": "dlrm"}, "seed": 3, "resume": "runs/1", "logger": {"name": "csv"}, "choices": {"model": "dlrm"}}
    of_text = hashlib.sha256(b'{"model": {"dim": 4, "name": "dlrm"}, "seed": 3}').hexdigest()[:16]
    assert fingerprint(OmegaConf.create(one)) == fingerprint(OmegaConf.create(other)) == of_text
    assert fingerprint(OmegaConf.create({"seed": 3, "model": {"dim": 4, "name": "${text}"}, "text": "x"})) == fingerprint(
        OmegaConf.create({"seed": 3, "model": {"dim": 4, "name": "x"}, "text": "x"})
    )


def test_differences_are_told_key_by_key_but_not_of_what_only_says_where():
    old = {
        "seed": 3,
        "model": {"dim": 4, "free": {}, "layers": [1, 2]},
        "logger": {"name": "csv"},
        "resume": None,
        "ablation": {"level": 1},
    }
    new = {"seed": 3, "model": {"dim": 8, "free": {"x": 1}, "layers": [1, 2]}, "logger": None, "resume": "runs/1", "data": {"root": "."}}
    assert differences(OmegaConf.create(new), OmegaConf.create(old)) == [
        "data.root: absent -> .",
        "model.dim: 4 -> 8",
        "model.free: {} -> absent",
        "model.free.x: absent -> 1",
    ]


def test_every_field_is_in_the_fingerprint_but_those_that_only_say_where():
    base = fingerprint(read([]).config)
    assert fingerprint(read([]).config) == base
    assert fingerprint(read(["logger=none"]).config) == base
    for word in ("seed=2", "model.dropout=0.1", "trainer.log_every_steps=7", "sharder=torchrec_row_wise", "simulate.batch_size=7"):
        assert fingerprint(read([word]).config) != base, word


def test_a_user_can_bring_a_cluster_of_their_own(tmp_path):
    (tmp_path / "cluster").mkdir()
    file = OmegaConf.load("conf/cluster/h100x64.yaml")
    file.name, file.hosts = "mine", 3
    OmegaConf.save(file, tmp_path / "cluster" / "mine.yaml")
    config = read(["--config-dir", str(tmp_path), "cluster=mine"]).config
    assert build(config.cluster).world_size == 24


def test_choices_in_a_conf_folder_here_are_found_unless_another_place_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "nginx").mkdir(parents=True)
    assert read(["cluster=h100x64"]).config.cluster.name == "h100x64"  # somebody else's conf
    (tmp_path / "conf" / "cluster").mkdir()
    (tmp_path / "conf" / "cluster" / "mine.yaml").write_text("defaults: [h100x64]\nname: mine\n")
    line = read(["cluster=mine", "hydra.run.dir=x"])
    assert line.config.cluster.name == "mine"
    with pytest.raises(UserError, match="mine"):
        read(["cluster=mine", "hydra.searchpath=[pkg://recsys_lab]"])


def test_a_tilde_before_a_folder_is_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(["hydra.run.dir=~/first"]).folder == tmp_path / "first"
    assert read(["-m", "seed=1,2", "hydra.sweep.dir=~/first"]).folder == tmp_path / "first"
    assert read(["data=criteo", "data.root=~/clicks#1"]).config.data.root == "~/clicks#1"
    with pytest.raises(UserError, match="your home"):
        read(["hydra.run.dir=~"])


def test_keys_given_to_a_cluster_reach_it():
    assert build(read(["cluster=h100x64", "cluster.hosts=16"]).config.cluster).world_size == 128


@pytest.mark.parametrize(
    "word", ["sharder.planner.force={C1: row_wise}", "sharder.planner.force.C1=row_wise", "+sharder.planner.force.C1=row_wise"]
)
def test_keys_of_a_free_mapping_are_the_users(word):
    assert read([word]).config.sharder.planner.force == {"C1": "row_wise"}


def test_keys_of_a_swept_group_reach_choices_that_the_default_lacks() -> None:
    """cluster=local has no price: Hydra would refuse the key before it starts the first job."""
    line = read(["-m", "cluster=h100x64,a100x64", "cluster.price_per_device_hour=2.5", "model.embedding_dim=16"])
    assert [config.cluster.price_per_device_hour for config in line.configs] == [2.5, 2.5]
    with pytest.raises(UserError, match="no such key"):
        read(["-m", "cluster=h100x64,a100x64", "cluster.prise=2.5"])


def test_the_first_seed_of_every_row_comes_first():
    jobs = read(["-m", "model=dcn,dlrm", "seed=1,2", "mode=plan"]).jobs
    assert [(job[0], job[1]) for job in jobs] == [(f"seed={seed}", f"model={model}") for seed in (1, 2) for model in ("dcn", "dlrm")]


@pytest.mark.parametrize(("word", "says"), [("resume=runs/x", "resume: not in a sweep"), ("overwrite=true", "overwrite: not in a sweep")])
def test_what_is_of_a_single_run_is_not_in_a_sweep(word, says):
    with pytest.raises(UserError, match=says):
        read(["-m", word, "seed=1,2"])


def test_the_ends_of_a_range_are_in_it():
    assert read(["optimizer.sparse.lr=1000000"]).config.optimizer.sparse.lr == 1e6


def test_a_word_that_this_locale_cannot_read_names_the_locale() -> None:
    code = "import sys; from recsys_lab.config.arguments import parsed; parsed(sys.argv[1:])"
    environment = os.environ | {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code, "model=d\u00e9"], env=environment, capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert "a word is not ASCII" in said and "LC_ALL=C.UTF-8" in said, done.stderr


def test_a_run_that_goes_on_does_so_in_its_own_folder(tmp_path):
    """Another one would be dropped without a word."""
    run = tmp_path / "run"
    run.mkdir()
    save(plain(read(["logger=none"]).config), run)
    with pytest.raises(UserError, match=f"hydra.run.dir: a run goes on in its own folder; given {tmp_path / 'other'} .*; drop one"):
        read([f"resume={run}", f"hydra.run.dir={tmp_path / 'other'}"])
    for own in (run, f"{run}/", os.path.relpath(run)):
        assert read([f"resume={run}", f"hydra.run.dir={own}"]).folder == run


def test_an_experiment_may_bring_what_a_sweep_runs_through() -> None:
    """DMT's figure 10 from configs alone: every job has the baseline's pipeline, formats and batch."""
    line = read(["-m", "experiment=dmt/figure10_line", "cluster=h100x64"])
    assert isinstance(line, Sweep)
    words = [dict(word.split("=") for word in job) for job in line.jobs]
    models, sharders = ("dlrm_dmt", "dcn_dmt"), ("dmt_baseline", "dmt_sptt", "dmt")
    assert [(job["model"], job["cluster"], job["sharder"]) for job in words] == [(m, "h100x64", s) for m in models for s in sharders]
    for config in line.configs:
        assert config.sharder.executor.pipeline and config.precision.forward_comm == "fp16" and set(config.model.lengths) == {1}
        assert (config.cluster.hosts, config.simulate.batch_size, config.mode) == (8, 16384, "simulate")
    assert len(read(["-m", "experiment=dmt/figure10_line", "sharder=dmt", "model=dcn_dmt", "cluster=h100x64"]).jobs) == 1
