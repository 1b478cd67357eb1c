"""docs/add_a_sharder.md, followed word by word: its file and its YAML make a sharder that plans, and the executor is as it says."""

from __future__ import annotations

import ast
import inspect
import sys
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf

from recsys_lab.config.choices import built
from recsys_lab.config.schema import resolved
from recsys_lab.executor.shard import shard
from recsys_lab.plan.validate import validate
from recsys_lab.sharders.base import PlanInputs
from tests.docs.pages import block_with
from tests.plan.plans import FP32, LENGTHS, TABLES, access, workload

PAGE = "add_a_sharder.md"


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's YAML, with the page's file as the module that it names."""
    module = ModuleType("recsys_lab.sharders.my_sharder")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block_with(PAGE, "class MySharder"), "my_sharder.py", "exec"), module.__dict__)
    return OmegaConf.create(block_with(PAGE, "planner:"))


def test_the_sharder_of_the_page_plans(group: Any) -> None:
    sharder = resolved(group.planner)
    inputs = PlanInputs(TABLES, access(TABLES, LENGTHS), built("cluster", "h100").reshaped(1, 4), FP32, workload())
    plan = sharder.plan(inputs)
    validate(plan)
    assert len({placement.ranks for placement in plan.placements}) == 4
    spare = type(sharder)(spare_ranks=3).plan(inputs)
    assert {placement.ranks for placement in spare.placements} == {(0,)}
    assert resolved(group.executor).func is shard


def test_the_executor_is_called_as_the_page_says() -> None:
    shown = ast.parse(block_with(PAGE, "def shard(") + "    ...").body[0]
    assert isinstance(shown, ast.FunctionDef)
    names = [argument.arg for argument in (*shown.args.args, *shown.args.kwonlyargs)]
    defaults = [ast.literal_eval(default) for default in shown.args.kw_defaults if default is not None]
    real = inspect.signature(shard).parameters.values()
    assert names == [parameter.name for parameter in real]
    assert defaults == [parameter.default for parameter in real if parameter.kind is parameter.KEYWORD_ONLY]
