"""docs/add_a_model.md, followed word by word: its file and its YAML make a model that plans, costs and trains."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from recsys_lab.base.schema import adapter, checked, schema_of
from recsys_lab.data.protocol import Feature
from recsys_lab.errors import UserError
from recsys_lab.experiment import ModelChoice
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.workload import describe
from tests.docs.pages import block_with
from tests.models.inputs import K, batch

PAGE = "add_a_model.md"


@pytest.fixture
def group(monkeypatch) -> Any:
    """The page's YAML, with the page's file as the module that it names."""
    module = ModuleType("recsys_lab.models.my_model")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block_with(PAGE, "class MyModel"), "my_model.py", "exec"), module.__dict__)
    return OmegaConf.create(block_with(PAGE, "_target_"))


def test_the_model_of_the_page_costs_what_its_layers_do_and_trains(group):
    class Data:
        features = tuple(Feature(name, rows, table=table) for name, rows, table in NAMED)

    choice = ModelChoice.of(group)
    tables = choice.tables(Data, "fp32")
    assert [table.dim for table in tables] == [16, 16, 16]
    cost = describe(choice.build(tables, K, torch.device("meta")), K)
    inputs = 4 * 16 + K
    assert cost.forward_flops_per_sample == 2 * (inputs * 128 + 128 * 64 + 64)
    model = choice.build(tables, K, torch.device("cpu"))
    initialise_dense(model, 1, torch.device("cpu"))
    fill_tables(model.embeddings, tables, 1)
    logits = model(*batch(6))
    logits.square().sum().backward()
    assert logits.shape == (6,) and logits.std() > 1e-4
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_the_annotations_of_the_page_are_the_schema(group):
    schema = schema_of(sys.modules["recsys_lab.models.my_model"].MyModel)
    plain = {key: value for key, value in group.items() if key != "_target_"}
    assert plain.items() <= adapter(schema).dump_python(checked(plain, schema, "model")).items()
    with pytest.raises(UserError, match="model.embedding_dim: wrong type"):
        checked(plain | {"embedding_dim": "wide"}, schema, "model")
    with pytest.raises(UserError, match="model.over_layer: no such key"):
        checked(plain | {"over_layer": [1]}, schema, "model")


NAMED = (("color", 7, None), ("shop", 11, None), ("brand", 11, "shop"), ("day", 5, None))
