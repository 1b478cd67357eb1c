"""Weights that TorchRec saved come in, to the bit: by name and shape, by a mapping, and nothing in a pickle is run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingPlan

from recsys_lab.commands.import_weights import main
from recsys_lab.config.command_line import read
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.export.imported import import_weights
from recsys_lab.train.checkpoint import Reader, whole
from tests.ranks import run_ranks

WORDS = ("model=dcn", "data=random", "data.rows_per_table=[11,30,40]", "logger=none")


def saved(folder: Path) -> dict[str, torch.Tensor] | None:
    """The model of WORDS under TorchRec's own DistributedModelParallel, saved by DCP in both of its formats; its whole weights."""
    experiment = of_words(WORDS, where="test")
    data = experiment.open_data()
    torch.manual_seed(3)
    model = experiment.build_model(data, torch.device("cpu"))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    expected = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    sharder: Any = EmbeddingBagCollectionSharder()
    kinds = (
        row_wise(compute_kernel="dense"),
        table_wise(rank=1, compute_kernel="dense"),
        column_wise(ranks=[0, 1], compute_kernel="dense"),
    )
    of_tables = {feature.name: kind for feature, kind in zip(data.features, kinds)}
    module = construct_module_sharding_plan(model.embeddings, of_tables, sharder, local_size=2, world_size=2, device_type="cpu")
    plan = ShardingPlan({"embeddings": module})
    sharded = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=[sharder], init_parameters=False)
    for name, value in sharded.state_dict().items():
        shards = value.local_shards() if hasattr(value, "local_shards") else []
        for shard in shards:
            at = tuple(slice(o, o + n) for o, n in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
            shard.tensor.copy_(expected[name][at])
    state = {"model": sharded.state_dict(), "step": torch.tensor(7)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder / "distcp"))
    return expected if torch.distributed.get_rank() == 0 else None


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("theirs")
    return folder / "distcp", run_ranks(saved, 1, 2, folder)[0]


def weights_of(run: Path, expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What its checkpoint has under our names, by those of the model."""
    reader, found = Reader(run / "checkpoints" / "step=0"), {}
    for name, weight in expected.items():
        key = f"table.{name.split('.')[2]}.weight" if name.startswith("embeddings.") else f"dense.{name}"
        reader.fill(whole(key, tensor := torch.empty_like(weight)))
        found[name] = tensor
    return found


def test_a_model_of_torchrec_comes_in_to_the_bit(
    theirs: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, expected = theirs
    assert main([str(folder), "--out", str(tmp_path / "run"), *WORDS]) == 0
    said = capsys.readouterr().out
    assert "not used: step" in said and "dense.over.0.weight: model.over.0.weight" in said
    found = weights_of(tmp_path / "run", expected)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    started = read([f"start_from={tmp_path / 'run'}", "trainer.max_steps=1"])
    assert started.config.model.embedding_dim == 16 and started.config.data.rows_per_table == [11, 30, 40]


def test_the_first_mismatch_is_named_and_nothing_is_left(theirs: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path) -> None:
    folder = theirs[0]
    for words, says in (
        (("data.rows_per_table=[11,31,40]",), r"the shapes differ; given \(30, 16\) in model.*, \(31, 16\) in the model"),
        (("model.cross_layers=9",), "dense.cross.down.*no one name of the checkpoint fits"),
        (("sharder=dmt",), "towers depend on a plan"),
    ):
        with pytest.raises(UserError, match=says):
            import_weights(folder, tmp_path / "run", (*WORDS, *words))
    assert not list(tmp_path.iterdir())


def test_a_mapping_says_what_names_do_not(theirs: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path) -> None:
    """Here of safetensors, whose names are others."""
    expected, folder = theirs[1], tmp_path / "hf"
    others = {f"their.{number}": weight.contiguous() for number, weight in enumerate(expected.values())}
    dcp.save(others, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True), no_dist=True)
    keys = [f"table.{name.split('.')[2]}.weight" if name.startswith("embeddings.") else f"dense.{name}" for name in expected]
    mapping = tmp_path / "names.json"
    mapping.write_text(json.dumps(dict(zip(keys, others))))
    import_weights(folder, tmp_path / "run", WORDS, mapping)
    found = weights_of(tmp_path / "run", expected)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    for text, says in (('{"table.x.weight": "their.0"}', "the model has no such tensor"), ("[1]", "no mapping"), ("a: b: c", "not YAML")):
        mapping.write_text(text)
        with pytest.raises(UserError, match=says):
            import_weights(folder, tmp_path / "other", WORDS, mapping)


class Calls:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("called",)


def test_a_pickle_that_names_code_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / ".metadata").write_bytes(pickle.dumps(Calls()))
    with pytest.raises(UserError, match="names code; given posix.mkdir"):
        import_weights(tmp_path / "bad", tmp_path / "run", WORDS)
    assert not (tmp_path / "called").exists()
    (tmp_path / "bad" / ".metadata").write_bytes(b"\x80\x04]q")
    with pytest.raises(UserError, match="no checkpoint that can be read"):
        import_weights(tmp_path / "bad", tmp_path / "run", WORDS)
