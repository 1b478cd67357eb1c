"""The Python API and the contracts that an extender meets say each argument, field, result and error."""

from __future__ import annotations

import pytest

import recsys_lab
from tests.architecture.docstrings import missing, missing_in

API = {
    "recsys_lab/api.py": "Explanation compose plan explain simulate run load",
    "recsys_lab/decide/decision.py": "decide",
    "recsys_lab/planning.py": "Planned plan_for price",
    "recsys_lab/simulate/simulated.py": "Simulated simulate",
    "recsys_lab/lightning/strategy.py": "ShardedStrategy",
    "recsys_lab/lightning/checkpoint.py": "whole_weights",
    "recsys_lab/interop/torchrec_plans.py": "tables_of experiment to_torchrec from_torchrec read simulate compared",
}
#: What a scheme, a sharder, a model, a data set, a launcher, a logger, a cluster and a profile are made of.
CONTRACTS = {
    "recsys_lab/plan/scheme.py": "Scheme Rules ModuleMemory register",
    "recsys_lab/plan/context.py": "Context Context.rows_there Context.gradients_back input_distribution",
    "recsys_lab/plan/table_work.py": "iteration",
    "recsys_lab/plan/lower.py": "lower",
    "recsys_lab/plan/memory.py": "check_fits",
    "recsys_lab/plan/validate.py": "validate",
    "recsys_lab/plan/steps.py": "Step Steps",
    "recsys_lab/plan/sharding_plan.py": "Shard Placement ShardingPlan",
    "recsys_lab/plan/workload.py": "Workload",
    "recsys_lab/sharders/base.py": "PlanInputs Sharder.plan Sharder.adapt Sharder.reasons",
    "recsys_lab/sharders/flexshard/planner.py": "FlexShard FlexShard.plan",
    "recsys_lab/sharders/dmt/planner.py": "DMT",
    "recsys_lab/sharders/neo/planner.py": "Neo4D",
    "recsys_lab/sharders/torchrec/planner.py": "TorchRec",
    "recsys_lab/cluster/topology.py": "Device Link Cluster",
    "recsys_lab/cluster/memory.py": "Host Disk",
    "recsys_lab/simulate/profile.py": "Profile",
    "recsys_lab/config/options.py": "SharderCommon ExecutorOptions",
    "recsys_lab/models/choice.py": "ModelChoice ModelChoice.tables ModelChoice.build",
    "recsys_lab/models/click_model.py": "ModelInputs ModelInputs.checked ClickModel ClickModel.predict ClickModel.example",
    "recsys_lab/models/layers.py": "embedding_bags embedding_rows check_layers",
    "recsys_lab/models/dlrm/__init__.py": "DLRM",
    "recsys_lab/models/dcn/__init__.py": "DCN",
    "recsys_lab/tables/lengths.py": "Lengths Lengths.of Lengths.law Lengths.longest_rank",
    "recsys_lab/tables/balance.py": "dealt",
    "recsys_lab/data/protocol.py": "Feature Split.read SizedSplit.lengths",
    "recsys_lab/executor/execution.py": "Request Part.start_input_dist Part.start_output_dist LocalModules Running Execution",
    "recsys_lab/executor/sharded_model.py": "ShardedModel",
    "recsys_lab/executor/shard.py": "shard",
    "recsys_lab/executor/collection.py": "shard_collection",
    "recsys_lab/data/torchrec_tables.py": "table_file",
    "recsys_lab/record/loggers.py": "tensorboard csv none finish",
    "recsys_lab/record/wandb_run.py": "start",
    "recsys_lab/record/mlflow_run.py": "start",
    "recsys_lab/record/metrics.py": "quality",
    "launchers/local.py": "launch",
    "launchers/emulated/launch.py": "launch",
    "launchers/kubernetes.py": "launch",
    "launchers/skypilot.py": "launch",
    "launchers/ray.py": "launch",
}
KERNELS = {
    "recsys_lab/kernels/rule.py": "Rule",
    "recsys_lab/kernels/lookups.py": "Lookups",
    "recsys_lab/kernels/embedding.py": "bags rows update",
    "recsys_lab/kernels/dense.py": "pair_dots pair_dots_backward relu_backward relu_backward_transposed to_one_backward",
    "recsys_lab/kernels/jagged_attention.py": "causal_softmax causal_silu",
    "recsys_lab/kernels/weights.py": "sgd_step",
    "recsys_lab/kernels/halves.py": "split join",
}
NAMED = [(path, name) for part in (API, CONTRACTS, KERNELS) for path, names in part.items() for name in names.split()]


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda word: word)
def test_a_contract_says_what_it_takes_gives_and_raises(path: str, name: str) -> None:
    assert missing_in(path, name) == []


def test_every_exported_function_is_among_them() -> None:
    there = {(path.removesuffix(".py").replace("/", "."), name) for path, name in NAMED}
    assert {(module, name) for name, module in recsys_lab.FUNCTIONS.items()} <= there


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('def f(a):\n    """F.\n\n    Args:\n        a: b.\n    """', []),
        ('def f(a, *, b):\n    """F.\n\n    Args:\n        a: b.\n    """', ["b is not in Args"]),
        ('def f(*, b):\n    """F; `conf/launcher/x.yaml` explains them."""', []),
        ('def f(a):\n    """F.\n\n    Args:\n        a, c: b.\n    """', ["Args has c, which is not there"]),
        ('def f() -> int:\n    """F."""', ["no Returns"]),
        ('def f():\n    """F."""\n    raise UserError("x")', ["no Raises"]),
        ('class f:\n    """C."""\n    a: int', ["a is not in Attributes"]),
        ('class f:\n    """C."""\n    a: int  # of b', []),
        ('class f:\n    """C.\n\n    Attributes:\n        a: b.\n    """\n    a: int\n    _b: int', []),
        ('class f:\n    """C.\n\n    Args:\n        a: b.\n    """\n    def __init__(self, a, b): ...', ["b is not in Args"]),
    ],
)
def test_what_is_not_said_is_found(source: str, says: list[str]) -> None:
    assert missing(source, "f") == says
