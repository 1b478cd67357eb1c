"""The command line is checked before Hydra acts: what is wrong is named, with the nearest right spelling."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError

from recsys_lab.config.command_line import CONF, _at, read
from recsys_lab.config.frozen import differences, fingerprint, plain, save
from recsys_lab.config.schema import build
from recsys_lab.config.words import with_quotes
from recsys_lab.errors import UserError

KUBERNETES = ["launcher=kubernetes", "cluster=h100x8"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["model=dcnn"], ["model", "dcnn", "did you mean 'dcn'"]),
        (["modle=dcn"], ["modle", "no such key"]),
        (["="], ["an empty key: no such key; allowed: ablation, ", "study, trainer"]),
        (["sharder=flexshard"], ["sharder", "no such choice", "torchrec_row_wise, torchrec_strong; did you mean 'flexshard_3tier'?"]),
        (["model.embeding_dim=3"], ["model.embeding_dim", "did you mean 'embedding_dim'"]),
        (["+model.extra=3"], ["model.extra", "no such key"]),
        (["+extra=3"], ["extra", "no such key"]),
        (["+sharder.plannr=3"], ["sharder.plannr", "did you mean 'planner'"]),
        (["model.embedding_dim=wide"], ["model.embedding_dim", "wrong type", "'wide'", "int"]),
        (["model.over_layers=[8,x]"], ["model.over_layers", "wrong type"]),
        (["seed=x"], ["seed", "wrong type"]),
        (["sharder.memory_budget_gb=lots"], ["sharder.memory_budget_gb", "wrong type", "allowed: float or null"]),
        (["sharder.memory_budget_gb=0"], ["sharder.memory_budget_gb: out of range"]),
        (["sharder.memory_budget_gb=nan"], ["sharder.memory_budget_gb: out of range"]),
        (["sharder.store=hots"], ["sharder.store: no such choice", "did you mean 'host'?"]),
        (["sharder.cache_policy=fifo"], ["sharder.cache_policy: no such choice", "lfu, lru"]),
        (["sharder.scratch=''"], ["sharder.scratch: not allowed", "a folder"]),
        (["seed=-1"], ["seed", "0 or more"]),
        (["mode=trian"], ["mode", "did you mean 'train'"]),
        (["optimizer.sparse.name=adm"], ["optimizer.sparse.name", "did you mean 'adam'"]),
        (["+optimizer.sparse.momentun=1"], ["optimizer.sparse.momentun", "no such key"]),
        (["trainer.max_steps=0"], ["trainer.max_steps", "nothing to train"]),
        (["trainer.gradient_clip_norm=-1"], ["trainer.gradient_clip_norm", "1e-09 or more", "or null"]),
        (["trainer.evaluate_every_epochs=0", "trainer.restore_best=true"], ["trainer.evaluate_every_epochs"]),
        (["trainer.restore_best=true", "trainer.early_stopping.metric=hit_rate_10"], ["early_stopping.metric", "auc, ne, log_loss"]),
        (["trainer.early_stopping.patience=2", "trainer.early_stopping.metric=ndcg_10"], ["early_stopping.metric", "auc, ne, log_loss"]),
        (["model=hstu", "data=interactions", "data.root=.", "trainer.restore_best=true"], ["early_stopping.metric", "ndcg_10"]),
        (["launcher.hosts=0"], ["launcher.hosts", "1 or more"]),
        (["data.batch_size=3"], ["data.batch_size", "3 for 4 ranks"]),
        (["data.batch_size=null"], ["data.batch_size"]),
        (["precision.compute=fp16", "precision.dense=bf16"], ["precision.compute", "fp32, bf16", "mode=simulate"]),
        (["precision.dense=split_bf16"], ["precision.compute", "fp32 for weights in split_bf16", "precision=bf16"]),
        (["precision.compute=bf16"], ["precision.compute", "bf16 for weights in fp32"]),
        (["precision.forward_comm=int8"], ["precision.forward_comm", "fp32, fp16, bf16", "mode=simulate"]),
        (["precision.table=fp31"], ["precision.table"]),
        (["model=dlrm,dcn"], ["several values", "-m"]),
        (["-m", "model=dlrm,dcnn"], ["model", "dcnn"]),
        (["-m", "seed=1,x"], ["seed", "wrong type"]),
        (["-m", "experiment=glob(nothing*)"], ["experiment", "no choice fits", "frappe"]),
        (["ablation.level=2"], ["ablation.level", "more than 0, less than 1"]),
        (["nonsense"], ["command line"]),
        (["model=null"], ["model", "one choice is needed"]),
        (["model=[dlrm]"], ["model", "one choice is needed"]),
        (["~model"], ["model", "one choice is needed"]),
        (["sharder.planner=null"], ["sharder.planner", "a group of keys is needed"]),
        (["~simulate.profile"], ["simulate.profile", "a group of keys is needed"]),
        (["ablation=5"], ["ablation", "a group of keys is needed", "given 5"]),
        (["optimizer.dense=null"], ["optimizer.dense", "keys name, lr"]),
        (["study=nope"], ["study", "a group of keys is needed", "nope"]),
        (["+choices=5"], ["choices", "no such key"]),
        (["resume=5"], ["5/config.yaml", "no run to resume"]),
        (["resume=[a]"], ["resume", "no name of a folder"]),
        (["seed=${nope}"], ["seed", "cannot be resolved", "${nope}"]),
        (["seed=${seed}"], ["seed", "leads back to itself"]),
        (["seed=[1"], ["command line"]),
        (["seed=" + "9" * 5000], ["command line"]),
        (["optimizer.dense.lr=1" + "0" * 400], ["optimizer.dense.lr", "too large"]),
        (["data.root=\udcff"], ["command line", "not UTF-8"]),
        (["model._target_=abc"], ["model._target_", "abc"]),
        (["model._target_=recsys_lab.cluster.Cluster"], ["model._target_", "not a ClickModel"]),
        (["sharder.planner._target_=os.system"], ["sharder.planner._target_", "os.system"]),
        (["launcher._target_=shutil.rmtree"], ["launcher._target_", "shutil.rmtree"]),
        (["data._target_=subprocess.run"], ["data._target_", "subprocess.run"]),
        (["logger._target_=recsys_lab.models.dlrm.DLRM"], ["logger._target_", "no function of this kind"]),
        (["experiment=neo/figure8", "study._target_=shutil.rmtree"], ["study._target_", "no function of this kind", "shutil.rmtree"]),
        (["--config-name=nope"], ["--config-name", "run.py has one config", "given nope", "--config-dir"]),
        (["--config-dir", "/nope"], ["--config-dir", "not a folder"]),
        (["--experimental-rerun", "x"], ["--experimental-rerun", "resume=RUN_FOLDER"]),
        (["--resolve"], ["--resolve", "--cfg"]),
        (["seed=1", "--nope"], ["python run.py", "--nope"]),
        (["model=dcnn", "--cfg", "job"], ["model", "did you mean 'dcn'"]),
        (["-m", "optimizer.sparse.lr=interval(0.1,1)"], ["optimizer.sparse.lr", "an interval is searched", "hydra/sweeper=optuna"]),
        (["-m", "seed=range(0,100000000)"], ["seed", "too many runs", "10,000"]),
        (["-m", "seed=range(1,1)"], ["seed", "no value to run"]),
        (["launcher.threads_per_rank=0"], ["launcher.threads_per_rank", "1 or more"]),
        (["launcher.threads_per_rank=99999999999999999999"], ["launcher.threads_per_rank", "at most 1,024"]),
        (["launcher.timeout_s=0"], ["launcher.timeout_s", "1 or more"]),
        (["logger.project=../../x"], ["logger.project", "'../../x'"]),
        (["logger.project=''"], ["logger.project", "a name without"]),
        (["logger.tags=[" + "x" * 200 + "]"], ["logger.tags[0]", "at most 64 characters"]),
        (["logger.entity='a/b'"], ["logger.entity", "'a/b'"]),
        (["launcher=kubernetes"], ["cluster.hosts", "leads back to itself", "name another cluster"]),
        (["model=xlrm", "model.groups=[]"], ["model.groups: wrong type; given []; allowed: a mapping"]),
        (["model.over_layers={}"], ["model.over_layers: wrong type; given {}; allowed: a list"]),
        (["hydra.run.dir=null"], ["hydra.run.dir: wrong type; given null; allowed: the name of a folder"]),
        (["-m", "hydra.sweep.dir=[a]"], ["hydra.sweep.dir: wrong type; given [a]; allowed: the name of a folder"]),
        (["hydra.verbose=5"], ["hydra.verbose", "not a key of Hydra's that a run takes", "hydra.run.dir"]),
        (["+hydra.job.env_copy=[NOPE]"], ["hydra.job.env_copy"]),
        (["~hydra.callbacks.ablation"], ["hydra.callbacks.ablation"]),
        (["-m", "seed=1,2", "hydra.sweep.subdir=."], ["hydra.sweep.subdir", "differs by job"]),
        (["-m", "seed=1,2", "hydra.sweep.subdir='../job_${hydra.job.num}'"], ["hydra.sweep.subdir"]),
        (["-m", "seed=1,2", "hydra.sweep.subdir='/job_${hydra.job.num}'"], ["hydra.sweep.subdir"]),
        (["-m", "seed=1,2", "hydra.sweeper.max_batch_size=0"], ["hydra.sweeper.max_batch_size"]),
        (["-m", "+hydra.sweeper.params.model='dlrm,dcn'"], ["hydra.sweeper.params.model"]),
        (["-m", "seed=1,2", "hydra/launcher=submitit_local"], ["hydra/launcher", "launcher=slurm"]),
        (["-m", "seed=1,2", "hydra/sweeper=nope"], ["hydra/sweeper", "no such choice", "optuna"]),
        (["hydra.searchpath=5"], ["hydra.searchpath", "a list of folders"]),
        (["hydra.searchpath=[/nope]"], ["hydra.searchpath", "not a folder", "/nope"]),
        (["hydra.searchpath=[pkg://nope.nope]"], ["hydra.searchpath", "no such package", "pkg://nope.nope"]),
        (["hydra.searchpath=[structured://]"], ["hydra.searchpath", "structured://", "file://DIR"]),
        (["--config-dir="], ["--config-dir", "not a folder"]),
        (["-p", "nope", "--cfg", "job"], ["--package", "nope"]),
        (["seed\t=1"], ["command line", "not an override", "key=value"]),
        ([*KUBERNETES, "launcher.namespace=My_Space"], ["launcher.namespace", "'My_Space'", "lower-case"]),
        ([*KUBERNETES, "launcher.image='two words'"], ["launcher.image", "'two words'"]),
        ([*KUBERNETES, "launcher.claim=-a"], ["launcher.claim", "'-a'"]),
        ([*KUBERNETES, "launcher.mount=runs"], ["launcher.mount", "an absolute path"]),
        ([*KUBERNETES, "launcher.shared_memory_gb=nan", "launcher.port=0"], ["launcher.shared_memory_gb", "nan"]),
        ([*KUBERNETES, "launcher.node_selector={a: 'b c'}"], ["launcher.node_selector.a", "'b c'"]),
    ],
)
def test_refused(words, parts):
    with pytest.raises(UserError) as caught:
        read(words)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))


@pytest.mark.parametrize(
    "words",
    [
        ["data.batch_size=4"],  # for four ranks
        ["trainer.early_stopping.patience=1", "trainer.early_stopping.metric=auc"],
        ["model=hstu", "data=interactions", "data.root=.", "trainer.restore_best=true", "trainer.early_stopping.metric=ndcg_10"],
        ["trainer.early_stopping.metric=ndcg_10"],  # nothing asks for it
        ["trainer.gradient_clip_norm=null"],
        ["trainer.max_steps=-1"],
        ["mode=simulate", "precision.forward_comm=int8"],
    ],
    ids=str,
)
def test_let_through(words):
    assert read(words).config is not None


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["seed=1,2", "-m"], ("--multirun", "seed=1,2")),
        (["seed=1", "--cfg", "job"], ("--cfg", "job", "seed=1")),
        (["seed=1", "--info"], ("--info", "all", "seed=1")),
        (["--config-dir", "conf", "seed=1", "-h", "mode=plan"], ("--help", "--config-dir", "conf", "seed=1", "mode=plan")),
    ],
)
def test_options_stand_anywhere(words, ordered):
    """Hydra's own parser is given them first."""
    argv = read(words).argv
    assert argv[: len(ordered)] == ordered


def test_letters_beyond_ascii_need_no_quotes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read(["hydra.run.dir=é"]).folder == tmp_path / "é"
    assert read(["data=criteo", f"data.root={tmp_path}/josé/a b"]).config.data.root == f"{tmp_path}/josé/a b"
    assert read(["data=criteo", "data.root=/l'été, deux/x".replace(",", "\\,")]).config.data.root == "/l'été, deux/x"
    line = read(["-m", "data=criteo", "data.root=é,b"])
    assert [job[1] for job in line.jobs] == ["data.root='é'", "data.root=b"] and "data.root='é',b" in line.argv


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
def test_a_run_folder_is_told_to_hydra_as_it_is(name, tmp_path):
    """What Hydra makes of the last word is the folder again."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        word = _at("run", tmp_path / name)
        hydra = compose("config", overrides=[word], return_hydra_config=True).hydra
    assert hydra.run.dir == str(tmp_path / name)


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
    assert read(["cluster=h100x64"]).argv[0] == "cluster=h100x64"  # somebody else's conf
    (tmp_path / "conf" / "cluster").mkdir()
    (tmp_path / "conf" / "cluster" / "mine.yaml").write_text("defaults: [h100x64]\nname: mine\n")
    line = read(["cluster=mine", "hydra.run.dir=x"])
    assert line.config.cluster.name == "mine" and line.argv[:2] == ("--config-dir", "conf")
    with pytest.raises(UserError, match="cluster.mine"):
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
    invocation = read([word])
    assert invocation.config.sharder.planner.force == {"C1": "row_wise"}
    assert invocation.argv[0].startswith("+")


def test_keys_of_a_swept_group_reach_choices_that_the_default_lacks() -> None:
    """cluster=local has no price: Hydra would refuse the key before it starts the first job."""
    line = read(["-m", "cluster=h100x64,a100x64", "cluster.price_per_device_hour=2.5", "model.embedding_dim=16"])
    assert "++cluster.price_per_device_hour=2.5" in line.argv and "model.embedding_dim=16" in line.argv
    with pytest.raises(UserError, match="no such key"):
        read(["-m", "cluster=h100x64,a100x64", "cluster.prise=2.5"])


def test_the_first_seed_of_every_row_comes_first():
    jobs = read(["-m", "model=dcn,dlrm", "seed=1,2", "mode=plan"]).jobs
    assert [(job[0], job[1]) for job in jobs] == [(f"seed={seed}", f"model={model}") for seed in (1, 2) for model in ("dcn", "dlrm")]


@pytest.mark.parametrize(("word", "says"), [("resume=runs/x", "resume: not in a sweep"), ("overwrite=true", "overwrite: not in a sweep")])
def test_what_is_of_a_single_run_is_not_in_a_sweep(word, says):
    with pytest.raises(UserError, match=says):
        read(["-m", word, "seed=1,2"])


def test_a_key_is_nearest_to_keys_and_groups():
    with pytest.raises(UserError, match=r"seeed: no such key.*did you mean 'seed'"):
        read(["seeed=1"])


def test_the_ends_of_a_range_are_in_it():
    assert read(["optimizer.sparse.lr=1000000"]).config.optimizer.sparse.lr == 1e6


@pytest.mark.parametrize("named", ["--config-dir", "hydra.searchpath"])
def test_what_is_no_file_of_choices_is_refused_before_hydra_opens_it(tmp_path, named) -> None:
    (tmp_path / "cluster").mkdir()
    os.mkfifo(tmp_path / "cluster" / "mine.yaml")
    words = ["--config-dir", str(tmp_path)] if named == "--config-dir" else [f"hydra.searchpath=[file://{tmp_path}]"]
    with pytest.raises(UserError, match=r"cluster/mine.yaml: not a file that can be read; given a named pipe; take it away"):
        read([*words, "mode=plan"])
    (tmp_path / "cluster" / "mine.yaml").rename(tmp_path / "mine.yaml")  # of no group: nobody opens it
    assert read([*words, "mode=plan"]).config is not None


def test_a_word_that_this_locale_cannot_read_names_the_locale() -> None:
    code = "import sys; from recsys_lab.config.words import parsed; parsed(sys.argv[1:])"
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
