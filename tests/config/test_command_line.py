"""The command line is checked before Hydra acts: what is wrong is named, with the nearest right spelling."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ReadonlyConfigError

from recsys_lab.config.command_line import read
from recsys_lab.config.frozen import fingerprint
from recsys_lab.config.schema import build
from recsys_lab.errors import UserError


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["model=dcnn"], ["model", "dcnn", "did you mean 'dcn'"]),
        (["modle=dcn"], ["modle", "no such key"]),
        (["model.embeding_dim=3"], ["model.embeding_dim", "did you mean 'embedding_dim'"]),
        (["+model.extra=3"], ["model.extra", "no such key"]),
        (["+extra=3"], ["extra", "no such key"]),
        (["+sharder.plannr=3"], ["sharder.plannr", "did you mean 'planner'"]),
        (["model.embedding_dim=wide"], ["model.embedding_dim", "wrong type", "'wide'", "int"]),
        (["model.over_layers=[8,x]"], ["model.over_layers", "wrong type"]),
        (["seed=x"], ["seed", "wrong type"]),
        (["seed=-1"], ["seed", "0 or more"]),
        (["mode=trian"], ["mode", "did you mean 'train'"]),
        (["optimizer.sparse.name=adm"], ["optimizer.sparse.name", "did you mean 'adam'"]),
        (["+optimizer.sparse.momentun=1"], ["optimizer.sparse.momentun", "no such key"]),
        (["trainer.max_steps=0"], ["trainer.max_steps", "nothing to train"]),
        (["trainer.gradient_clip_norm=-1"], ["trainer.gradient_clip_norm", "above 0"]),
        (["trainer.evaluate_every_epochs=0", "trainer.restore_best=true"], ["trainer.evaluate_every_epochs"]),
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
        (["ablation.level=2"], ["ablation.level", "not a probability"]),
        (["nonsense"], ["command line"]),
    ],
)
def test_refused(words, parts):
    with pytest.raises(UserError) as caught:
        read(words)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))


def test_what_runs_cannot_change():
    config = read(["model=dlrm", "seed=3"]).config
    with pytest.raises(ReadonlyConfigError):
        config.seed = 4
    assert config.choices.model == "dlrm"


def test_every_field_is_in_the_fingerprint_but_those_that_only_say_where():
    base = fingerprint(read([]).config)
    assert fingerprint(read([]).config) == base
    assert fingerprint(read(["logger=none"]).config) == base
    for word in ("seed=2", "model.dropout=0.1", "trainer.log_every_steps=7", "sharder=torchrec_row_wise", "simulate.batch_size=7"):
        assert fingerprint(read([word]).config) != base, word


def test_a_user_can_bring_a_cluster_of_their_own(tmp_path):
    (tmp_path / "cluster").mkdir()
    ours = OmegaConf.load("conf/cluster/h100x64.yaml")
    ours.name, ours.hosts = "mine", 3
    OmegaConf.save(ours, tmp_path / "cluster" / "mine.yaml")
    config = read(["--config-dir", str(tmp_path), "cluster=mine"]).config
    assert build(config.cluster).world_size == 24


def test_keys_given_to_a_cluster_reach_it():
    assert build(read(["cluster=h100x64", "cluster.hosts=16"]).config.cluster).world_size == 128


@pytest.mark.parametrize(
    "word", ["sharder.planner.force={C1: row_wise}", "sharder.planner.force.C1=row_wise", "+sharder.planner.force.C1=row_wise"]
)
def test_keys_of_a_free_mapping_are_the_users(word):
    asked = read([word])
    assert asked.config.sharder.planner.force == {"C1": "row_wise"}
    assert asked.argv[0].startswith("+")
