"""What a command line may not say: refused in one line that names the field, with the nearest right spelling."""

from __future__ import annotations

import pytest

from recsys_lab.config.command_line import read
from recsys_lab.errors import UserError


@pytest.mark.parametrize(
    ("words", "field", "nearest"),
    [
        (["model=dcnn"], "model", "did you mean 'dcn'?"),
        (["modle=dcn"], "modle", "did you mean 'model'?"),
        (["="], "command line", None),
        (["sharder=flexshard"], "sharder", "did you mean 'flexshard_3tier'?"),
        (["model.embeding_dim=3"], "model.embeding_dim", "did you mean 'embedding_dim'?"),
        (["+model.extra=3"], "model.extra", None),
        (["+extra=3"], "extra", None),
        (["+sharder.plannr=3"], "sharder.plannr", "did you mean 'planner'?"),
        (["model.embedding_dim=wide"], "model.embedding_dim", None),
        (["model.over_layers=[8,x]"], "model.over_layers[1]", None),
        (["seed=x"], "seed", None),
        (["sharder.memory_budget_gb=lots"], "sharder.memory_budget_gb", None),
        (["sharder.memory_budget_gb=0"], "sharder.memory_budget_gb", None),
        (["sharder.memory_budget_gb=nan"], "sharder.memory_budget_gb", None),
        (["sharder.store=hots"], "sharder.store", "did you mean 'host'?"),
        (["sharder.cache_policy=fifo"], "sharder.cache_policy", None),
        (["sharder.scratch=''"], "sharder.scratch", None),
        (["sharder.executor.row_update=rtm"], "sharder.executor.row_update", None),
        (["seed=-1"], "seed", None),
        (["mode=trian"], "mode", "did you mean 'train'?"),
        (["optimizer.sparse.name=adm"], "optimizer.sparse.name", "did you mean 'adam'?"),
        (["+optimizer.sparse.momentun=1"], "optimizer.sparse.momentun", None),
        (["trainer.max_steps=0"], "trainer.max_steps", None),
        (["trainer.gradient_clip_norm=-1"], "trainer.gradient_clip_norm", None),
        (["trainer.evaluate_every_epochs=0", "trainer.restore_best=true"], "trainer.evaluate_every_epochs", None),
        (["trainer.restore_best=true", "trainer.early_stopping.metric=hit_rate_10"], "trainer.early_stopping.metric", None),
        (["trainer.early_stopping.patience=2", "trainer.early_stopping.metric=ndcg_10"], "trainer.early_stopping.metric", None),
        (["model=hstu", "data=interactions", "data.root=.", "trainer.restore_best=true"], "trainer.early_stopping.metric", None),
        (["launcher.hosts=0"], "launcher.hosts", None),
        (["data.batch_size=3"], "data.batch_size", None),
        (["data.batch_size=null"], "data.batch_size", None),
        (["precision.compute=fp16", "precision.dense=bf16"], "precision.compute", None),
        (["precision.dense=split_bf16"], "precision.compute", None),
        (["precision.compute=bf16"], "precision.compute", None),
        (["precision.forward_comm=int8"], "precision.forward_comm", None),
        (["precision.table=fp31"], "precision.table", None),
        (["model=dlrm,dcn"], "model", None),
        (["-m", "model=dlrm,dcnn"], "model", None),
        (["-m", "seed=1,x"], "seed", None),
        (["-m", "experiment=glob(nothing*)"], "experiment", None),
        (["ablation.level=2"], "ablation.level", None),
        (["nonsense"], "command line", None),
        (["model=null"], "model", None),
        (["model=[dlrm]"], "model", None),
        (["~model"], "model", None),
        (["sharder.planner=null"], "sharder.planner", None),
        (["~simulate.profile"], "simulate.profile", None),
        (["ablation=5"], "ablation", None),
        (["optimizer.dense=null"], "optimizer.dense", None),
        (["study=nope"], "study", None),
        (["+choices=5"], "choices", None),
        (["resume=5"], "5/config.yaml", None),
        (["resume=[a]"], "resume", None),
        (["seed=${nope}"], "seed", None),
        (["seed=${seed}"], "seed", None),
        (["seed=[1"], "command line", None),
        (["data.root=\udcff"], "command line", None),
        (["sharder=parameter_server"], "sharder", "training is synchronous here"),
        (["launcher.backend=ccl"], "launcher.backend", "no MPI and no oneCCL"),
        (["launcher=mpi"], "launcher", "several hosts: launcher=torchrun"),
        (["launcher=oneccl"], "launcher", "no MPI and no oneCCL"),
        (["sharder=ps"], "sharder", "training is synchronous here"),
        (["precision=fp16"], "precision", "fp16_comms or fp16_tables"),
        (["precision=fp8"], "precision", "fp8_comms"),
        (["model._target_=abc"], "model._target_", None),
        (["model._target_=recsys_lab.cluster.Cluster"], "model._target_", None),
        (["sharder.planner._target_=os.system"], "sharder.planner._target_", None),
        (["launcher._target_=shutil.rmtree"], "launcher._target_", None),
        (["data._target_=subprocess.run"], "data._target_", None),
        (["logger._target_=recsys_lab.models.dlrm.DLRM"], "logger._target_", None),
        (["experiment=neo/figure8", "study._target_=shutil.rmtree"], "study._target_", None),
        (["--config-name=nope"], "--config-name", None),
        (["--config-dir", "/nope"], "--config-dir", None),
        (["--experimental-rerun", "x"], "--experimental-rerun", None),
        (["--resolve"], "--resolve", None),
        (["seed=1", "--nope"], "python run.py", None),
        (["model=dcnn", "--cfg", "job"], "model", "did you mean 'dcn'?"),
        (["-m", "optimizer.sparse.lr=interval(0.1,1)"], "optimizer.sparse.lr", None),
        (["-m", "seed=range(0,100000000)"], "seed", None),
        (["-m", "seed=range(1,1)"], "seed", None),
        (["launcher.threads_per_rank=0"], "launcher.threads_per_rank", None),
        (["launcher.threads_per_rank=99999999999999999999"], "launcher.threads_per_rank", None),
        (["launcher.timeout_s=0"], "launcher.timeout_s", None),
        (["logger.project=../../x"], "logger.project", None),
        (["logger.project=''"], "logger.project", None),
        (
            [
                "logger.tags=[xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]"
            ],
            "logger.tags[0]",
            None,
        ),
        (["logger.entity='a/b'"], "logger.entity", None),
        (["launcher=kubernetes"], "cluster.hosts", None),
        (["model=xlrm", "model.groups=[]"], "model.groups", None),
        (["model.over_layers={}"], "model.over_layers", None),
        (["hydra.run.dir=null"], "hydra.run.dir", None),
        (["-m", "hydra.sweep.dir=[a]"], "hydra.sweep.dir", None),
        (["hydra.verbose=5"], "hydra.verbose", None),
        (["+hydra.job.env_copy=[NOPE]"], "hydra.job.env_copy", None),
        (["~hydra.callbacks.ablation"], "hydra.callbacks.ablation", None),
        (["-m", "seed=1,2", "hydra.sweep.subdir=."], "hydra.sweep.subdir", None),
        (["-m", "seed=1,2", "hydra.sweep.subdir='../job_${hydra.job.num}'"], "hydra.sweep.subdir", None),
        (["-m", "seed=1,2", "hydra.sweep.subdir='/job_${hydra.job.num}'"], "hydra.sweep.subdir", None),
        (["-m", "seed=1,2", "hydra.sweeper.max_batch_size=0"], "hydra.sweeper.max_batch_size", None),
        (["-m", "+hydra.sweeper.params.model='dlrm,dcn'"], "hydra.sweeper.params.model", None),
        (["-m", "seed=1,2", "hydra/launcher=submitit_local"], "hydra/launcher", None),
        (["-m", "seed=1,2", "hydra/sweeper=nope"], "hydra/sweeper", None),
        (["hydra.searchpath=5"], "hydra.searchpath", None),
        (["hydra.searchpath=[/nope]"], "hydra.searchpath", None),
        (["hydra.searchpath=[pkg://nope.nope]"], "hydra.searchpath", None),
        (["hydra.searchpath=[structured://]"], "hydra.searchpath", None),
        (["--config-dir="], "--config-dir", None),
        (["seed\t=1"], "command line", None),
        (["launcher=kubernetes", "cluster=h100x8", "launcher.namespace=My_Space"], "launcher.namespace", None),
        (["launcher=kubernetes", "cluster=h100x8", "launcher.image='two words'"], "launcher.image", None),
        (["launcher=kubernetes", "cluster=h100x8", "launcher.claim=-a"], "launcher.claim", None),
        (["launcher=kubernetes", "cluster=h100x8", "launcher.mount=runs"], "launcher.mount", None),
        (["launcher=kubernetes", "cluster=h100x8", "launcher.shared_memory_gb=nan", "launcher.port=0"], "launcher.shared_memory_gb", None),
        (["launcher=kubernetes", "cluster=h100x8", "launcher.node_selector={a: 'b c'}"], "launcher.node_selector.a", None),
        (["model=dlmr"], "model", "did you mean 'dlrm'?"),
        (["model=dlrm,dlmr"], "model", None),
        (["experiment=neo/tabel3"], "experiment", "did you mean 'neo/table3'?"),
        (["sharder=common"], "sharder", None),
        (["cluster=h10"], "cluster", None),
        (["MODEL=dcn"], "MODEL", "did you mean 'model'?"),
        (["model=DCN"], "model", "did you mean 'dcn'?"),
        (["sed=1"], "sed", "did you mean 'seed'?"),
        (["batch=64"], "batch", "did you mean data.batch_size or simulate.batch_size or simulate.global_batch?"),
        (["batch_size=64", "mode=simulate"], "batch_size", "did you mean data.batch_size or simulate.batch_size?"),
        (["hosts=2"], "hosts", "did you mean cluster.hosts or launcher.hosts?"),
        (["model.droput=1"], "model.droput", "did you mean 'dropout'?"),
        (["seed.x=1"], "seed", None),
        (["model.dropout.x=1"], "model.dropout", None),
        (["+seed.x=1"], "seed", None),
        (["sharder.planner.forse.C1=1"], "sharder.planner.forse", "did you mean 'force'?"),
        (["sharder.planner.permute=rows"], "sharder.planner.permute", None),
        (["choices=1"], "choices", None),
        (["+choices.model=1"], "choices.model", None),
        (["cluster=h100", "cluster/device=l5"], "cluster/device", "did you mean 'l4'?"),
        (["cluster/devise@cluster.device=l4"], "cluster/devise", "did you mean 'cluster/device'?"),
        (["cluster=l40s", "+cluster/disc=nvme4_x4"], "cluster/disc", "did you mean 'cluster/disk'?"),
        (["clustr/disk=nvme4_x4"], "clustr/disk", "did you mean 'cluster'?"),
        (["cluster=h100", "+cluster/disk=nvme4_x4"], "command line", None),
        (["cluster=l40s", "cluster/disk=nvme4_x4"], "cluster/disk", None),
        (["seed=" + "9" * 5000], "command line", None),
        (["optimizer.dense.lr=1" + "0" * 400], "optimizer.dense.lr", None),
        (["data.root=\udcff"], "command line", None),
        (["--help", "model=nope"], "model", None),
    ],
)
def test_refused(words: list[str], field: str, nearest: str | None) -> None:
    with pytest.raises(UserError) as caught:
        read(words)
    line = str(caught.value)
    assert "\n" not in line and caught.value.exit_code == 2
    assert str(caught.value.parts["where"]).endswith(field), line
    assert nearest is None or nearest in line, line


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
        ["sharder=dmt", "sharder.planner.permute=rows"],  # a key of this choice alone
    ],
    ids=str,
)
def test_let_through(words: list[str]) -> None:
    assert read(words)


def test_a_key_of_a_group_is_named_where_the_group_is_left_out() -> None:
    for key, meant in (("batch_size", "data.batch_size or simulate.batch_size"), ("hosts", "cluster.hosts or launcher.hosts")):
        with pytest.raises(UserError, match=rf"{key}: no such key.*did you mean {meant}\?"):
            read([f"{key}=64"])


def test_the_mistake_is_shown_where_it_was_made() -> None:
    """bottom_layers ends in ${model.embedding_dim}, cluster.hosts is ${launcher.hosts}."""
    for word in ("model.embedding_dim=-3", "launcher.hosts=0"):
        with pytest.raises(UserError) as caught:
            read([word])
        assert caught.value.parts["where"] == word.partition("=")[0]


def test_a_broken_file_of_the_users_own_is_named(tmp_path) -> None:
    (tmp_path / "cluster").mkdir()
    files = {name: tmp_path / "cluster" / f"{name}.yaml" for name in ("latin", "one", "two")}
    files["latin"].write_bytes(b"# caf\xe9\ndefaults: [h100]\n")
    with pytest.raises(UserError) as caught:
        read(["--config-dir", str(tmp_path), "cluster=latin"])
    assert caught.value.parts["where"] == str(files.pop("latin"))
    (tmp_path / "cluster" / "latin.yaml").unlink()
    files["one"].write_text("defaults: [h100, two]\n")
    files["two"].write_text("defaults: [one, _self_]\nname: two\n")
    with pytest.raises(UserError) as caught:
        read(["--config-dir", str(tmp_path), "cluster=one"])
    assert caught.value.parts["where"] in {str(file) for file in files.values()}
    for file in files.values():
        file.unlink()
    files["one"].write_text("a: &a [*a]\n")
    with pytest.raises(UserError) as caught:
        read(["--config-dir", str(tmp_path), "cluster=one"])
    assert caught.value.parts["where"] == str(files["one"])
