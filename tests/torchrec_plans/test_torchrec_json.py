"""A plan that TorchRec's own planner made, written as JSON with its own `_serialize`, is read, explained and priced."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.types import ShardingPlan, ShardingType
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.__main__ import main
from recsys_lab.errors import UserError
from recsys_lab.interop import torchrec_json, torchrec_plans
from recsys_lab.sharders.torchrec.types import SCHEMES

HOSTS, RANKS_PER_HOST = 2, 2
WORDS = ("cluster=h100x8", f"cluster.hosts={HOSTS}", f"cluster.ranks_per_host={RANKS_PER_HOST}")
SMALL = (*WORDS, "cluster.device.memory_gb=0.14", "cluster.reserved_memory_share=0")
#: A table for each of TorchRec's sharding types.
TABLES = [EmbeddingBagConfig(name=f"t_{kind}", num_embeddings=5_000, embedding_dim=64, feature_names=[f"f_{kind}"]) for kind in SCHEMES]


class AnyType(EmbeddingBagCollectionSharder):
    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


@pytest.fixture(scope="module")
def model() -> EmbeddingBagCollection:
    return EmbeddingBagCollection(TABLES, device=torch.device("meta"))


@pytest.fixture(scope="module")
def torchrec_plan(model: EmbeddingBagCollection) -> ShardingPlan:
    """Of TorchRec's planner."""
    topology = Topology(HOSTS * RANKS_PER_HOST, "cuda", local_world_size=RANKS_PER_HOST)
    constraints = {f"t_{kind}": ParameterConstraints(sharding_types=[kind]) for kind in SCHEMES}
    return EmbeddingShardingPlanner(topology=topology, batch_size=64, constraints=constraints).plan(model, [AnyType()])


@pytest.fixture
def file(torchrec_plan: ShardingPlan, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(torchrec_plan._serialize()))
    return path


@pytest.fixture
def tables(model: EmbeddingBagCollection, tmp_path: Path) -> Path:
    """The same tables as a CSV, as `model=tables` reads them."""
    path = tmp_path / "tables.csv"
    path.write_text("name,rows,dim,mean_ids\n" + "".join(f"{one.name},{one.num_embeddings},{one.embedding_dim},1\n" for one in TABLES))
    return path


def test_the_file_is_the_plan_in_memory(file: Path, torchrec_plan: ShardingPlan, model: EmbeddingBagCollection) -> None:
    read = torchrec_plans.read(file, model, HOSTS, RANKS_PER_HOST)
    assert read == torchrec_plans.from_torchrec(torchrec_plan, model, HOSTS, RANKS_PER_HOST)
    assert {placement.scheme for placement in read.placements} == set(SCHEMES)


def test_it_is_priced_as_the_plan_in_memory_and_beside_ours(file: Path, torchrec_plan: ShardingPlan, model: EmbeddingBagCollection) -> None:
    actual = torchrec_plans.compared(model, {"file": file, "memory": torchrec_plan, "ours": "neo_4d"}, *WORDS)
    assert actual.loc["file"].equals(actual.loc["memory"])
    assert actual["iteration_ms"]["ours"] < actual["iteration_ms"]["file"]


def test_the_command_explains_prices_and_compares(file: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["torchrec_plan", str(file), "model=tables", f"model.file={tables}", *WORDS]
    assert main([*words, "--json"]) == 0
    actual = json.loads(capsys.readouterr().out)
    assert list(actual["priced"]) == ["plan.json", "neo_4d"] and actual["plan"]["sharder"] == "torchrec"
    direct = torchrec_json.compared(file, ["neo_4d"], "model=tables", f"model.file={tables}", *WORDS)
    assert actual["priced"]["neo_4d"]["iteration_ms"] == direct["neo_4d"].iteration_ms
    head, first, *rest = str(direct).splitlines()
    assert head.split() == ["plan.json", "neo_4d"] and re.fullmatch(r"ms of an iteration( +\d+\.\d\d){2}", first)
    assert "Priced(" not in str(direct) and len({len(line) for line in (head, first, *rest)}) == 1
    assert main([*words, "--beside", "torchrec_row_wise,neo_4d"]) == 0
    output = capsys.readouterr().out
    assert all(word in output for word in ("t_grid_shard", "torchrec_row_wise", "neo_4d", "Simulated", "MB that a rank sends"))


def test_a_plan_that_does_not_fit_says_so_beside_the_others(file: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the whole tables that TorchRec put on rank 0, its memory is too small; evenly spread they fit."""
    words = ["torchrec_plan", str(file), "model=tables", f"model.file={tables}", *SMALL]
    actual = torchrec_json.compared(file, ["neo_4d"], *words[2:])
    assert actual["plan.json"].iteration_ms is None and actual["neo_4d"].iteration_ms
    assert re.match(
        r"the plan lacks [\d.]+ MB on rank \d, which needs .*; nearest change that would fit: ", str(actual["plan.json"].why_not)
    )
    assert re.search(r"ms of an iteration +does not fit +\d+\.\d\d\n", str(actual)) and "\nplan.json: the plan lacks " in str(actual)
    assert main([*words, "--beside", "neo_4d"]) == 3
    output = capsys.readouterr()
    assert "does not fit" in output.out and output.err.startswith("error: the plan lacks ") and output.err.count("\n") == 1
    assert main([*words, "--beside", "neo_4d", "--json"]) == 3
    priced = json.loads(capsys.readouterr().out)["priced"]
    assert priced["plan.json"]["iteration_ms"] is None and "lacks" in priced["plan.json"]["why_not"]


def test_a_plan_in_memory_that_does_not_fit_says_so_beside_the_others(torchrec_plan: ShardingPlan, model: EmbeddingBagCollection) -> None:
    actual = torchrec_plans.compared(model, {"theirs": torchrec_plan, "ours": "neo_4d"}, *SMALL)
    assert actual["iteration_ms"]["ours"] > 0 and str(actual["iteration_ms"]["theirs"]) == "nan"
    assert "lacks" in actual["why_not"]["theirs"] and not isinstance(actual["why_not"]["ours"], str)
    assert "why_not" not in torchrec_plans.compared(model, {"theirs": torchrec_plan}, *WORDS)


def _changed(change: Callable[[dict[str, Any]], None]) -> Callable[[str], str]:
    def text(whole: str) -> str:
        data = json.loads(whole)
        change(data["plan"][""])
        return json.dumps(data)

    return text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda whole: whole[:50], "not JSON"),
        (lambda whole: "[]", r"of another shape"),
        (lambda whole: '{"schema": 1}', r"plan is of another shape"),
        (lambda whole: '{"plan": {"": {"t": {"ranks": [0]}}}}', r"plan\.\.t\.sharding_type is of another shape"),
        (_changed(lambda plan: plan.pop("t_row_wise")), "the plan lacks a table; given t_row_wise"),
        (_changed(lambda plan: plan.update(more=plan["t_row_wise"])), "the plan has a table more; given more"),
        (_changed(lambda plan: plan["t_row_wise"].update(sharding_type="diagonal")), "t_row_wise: no such sharding type; given diagonal"),
        (_changed(lambda plan: plan["t_row_wise"].update(ranks=[0])), "t_row_wise: a rank for each shard is needed; given 1 rank and 4"),
        (_changed(lambda plan: plan["t_row_wise"].pop("shards")), "a rank for each shard is needed; given 4 ranks and 0 shards"),
        (_changed(lambda plan: plan["t_table_wise"].update(ranks=[9])), "a shard lies on a rank that does not exist; given"),
        (_changed(lambda plan: plan["t_table_wise"]["shards"][0].update(shard_sizes=[5_000, 32])), "t_table_wise"),
        (_changed(lambda plan: plan["t_table_wise"]["shards"][0].update(shard_sizes=[5_000])), "a shard needs rows and columns"),
        (_changed(lambda plan: plan["t_table_wise"].update(ranks=["0"])), "ranks.* is of another shape"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(
    change: Callable[[str], str], says: str, file: Path, tables: Path, model: EmbeddingBagCollection, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(change(file.read_text()))
    with pytest.raises(UserError, match=says):
        torchrec_plans.read(file, model, HOSTS, RANKS_PER_HOST)
    assert main(["torchrec_plan", str(file), "model=tables", f"model.file={tables}", *WORDS]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: ") and re.search(says, output.err) and output.err.count("\n") == 1 and output.out == ""


def test_a_file_that_is_not_there_is_one_line(model: EmbeddingBagCollection, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json: no such file; write it again with json\.dump"):
        torchrec_plans.read(tmp_path / "none.json", model, HOSTS, RANKS_PER_HOST)


def loaded(file: Path, model: torch.nn.Module) -> ShardingPlan:
    """With the lines of docs/torchrec.md, which know nothing of us."""
    page = (Path(__file__).parents[2] / "docs" / "torchrec.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n([^`]*def load\(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"EmbeddingBagCollection": EmbeddingBagCollection}
    exec(code.partition("\nplan = load(")[0], names)
    return names["load"](file, model)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_plan_of_ours_is_written_as_torchrec_would_and_loaded_without_us(file: Path, tmp_path: Path, device: str) -> None:
    """Of every scheme that TorchRec has, for a model that keeps its tables in a module of its own."""
    model = torch.nn.ModuleDict({"sparse": EmbeddingBagCollection(TABLES, device=torch.device("meta"))})
    ours = torchrec_plans.read(file, model, HOSTS, RANKS_PER_HOST)
    expected = torchrec_plans.to_torchrec(ours, model, device)
    written = torchrec_json.write(tmp_path / "ours.json", ours, device)
    assert json.loads(written.read_text())["plan"][""] == json.loads(json.dumps(expected._serialize()))["plan"]["sparse"]
    assert loaded(written, model) == expected
    assert torchrec_plans.read(written, model, HOSTS, RANKS_PER_HOST) == ours


def test_the_command_writes_a_sharders_plan_and_prices_it_as_that(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["torchrec_plan", str(tmp_path / "ours.json"), "--write", "neo_4d", "model=tables", f"model.file={tables}", *WORDS, "--json"]
    assert main(words) == 0
    priced = json.loads(capsys.readouterr().out)["priced"]
    assert priced["ours.json"] == priced["neo_4d"] and priced["neo_4d"]["iteration_ms"] > 0


def test_a_scheme_that_torchrec_has_not_is_one_line_and_no_file(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["torchrec_plan", str(tmp_path / "ours.json"), "--write", "dmt_sptt", "model=tables", f"model.file={tables}", *WORDS]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "TorchRec has no such scheme" in err and not (tmp_path / "ours.json").exists()
