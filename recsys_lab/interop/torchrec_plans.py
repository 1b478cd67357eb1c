"""Plans of ours for a TorchRec model, and TorchRec's plans in ours: to train with, to read, and to price.

from recsys_lab import torchrec_plans

plan = recsys_lab.plan(torchrec_plans.experiment(model, "cluster=h100x64", "sharder=neo_4d")).plan
DistributedModelParallel(model, plan=torchrec_plans.to_torchrec(plan, model, "cuda"))

In the examples below `model` is that of docs/torchrec.md.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import nn
from torchrec.distributed import types as tr
from torchrec.modules.embedding_configs import DataType, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab import api
from recsys_lab.data.torchrec_tables import MeanIds, name_of, shared_features, table_file
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.executor.torchrec_plan import to_torchrec as of_one_module
from recsys_lab.experiment import Experiment
from recsys_lab.interop import torchrec_json
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.validate import validate
from recsys_lab.sharders.torchrec.search import from_torchrec as placements_of
from recsys_lab.tables import Table

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

AnyPlan: TypeAlias = tr.ShardingPlan | Path | str
#: How TorchRec's kernels name our formats of weights.
FORMATS = {DataType.FP32: "fp32", DataType.FP16: "fp16", DataType.BF16: "bf16"}


def tables_of(model: nn.Module) -> tuple[Table, ...]:
    """The tables of all embedding collections of a model, in the order of its modules.

    Args:
        model: not sharded yet.

    Returns:
        Tables with TorchRec's names, features and formats.

    Raises:
        UserError: where the model has none, two tables share a name, or weights have a format that plans do not know.

    >>> [(table.name, table.rows) for table in tables_of(model)][:2]
    [('item', 10000000), ('shop', 5000000)]
    """
    by_name: dict[str, Table] = {}
    shared = shared_features(config for _, collection in collections_of(model) for config in _configs(collection))
    for path, collection in collections_of(model):
        for config in _configs(collection):
            if config.name in by_name:
                remedy = "give each table a name of its own"
                raise UserError("two tables have one name", where=path or "the model", given=config.name, remedy=remedy)
            if config.data_type not in FORMATS:
                allowed = ", ".join(kind.value for kind in FORMATS)
                raise UserError("no such format of weights in a plan", where=config.name, given=config.data_type.value, allowed=allowed)
            pooling = "none" if isinstance(config, EmbeddingConfig) else config.pooling.value.lower()
            names = tuple(name_of(feature, config, shared) for feature in config.feature_names)
            by_name[config.name] = Table(
                config.name, config.num_embeddings, config.embedding_dim, names, pooling, FORMATS[config.data_type]
            )
    if not by_name:
        raise UserError("no EmbeddingBagCollection and no EmbeddingCollection", where=type(model).__name__)
    return tuple(by_name.values())


def to_torchrec(plan: ShardingPlan, model: nn.Module, device: str, kernel: str | None = None) -> tr.ShardingPlan:
    """A plan of ours as the one that `DistributedModelParallel(model, plan=...)` takes.

    Args:
        plan: for the tables of `model`, by their names.
        model: not sharded yet. On any device.
        device: cpu or cuda, where it will train.
        kernel: TorchRec's compute kernel of sharded tables; None: fused on a GPU, dense on the CPU. Replicated tables have `dense`, the
            only one that TorchRec has for them.

    Returns:
        TorchRec's plan, an entry for each embedding collection of `model` under its path.

    Raises:
        UserError: for a table that the plan lacks or has with another size, and for a scheme that TorchRec has not. On the CPU also for
            `fused` and for sequences: FBGEMM's kernels compute garbage or crash there (docs/torchrec.md). On CUDA for shards whose columns
            are no multiple of 4, as FBGEMM's kernels need.

    >>> plan = api.plan(experiment(model, "cluster=h100x8", "sharder=torchrec_row_wise")).plan
    >>> to_torchrec(plan, model, "cuda").plan["tables"]["item"].sharding_type
    'row_wise'
    """
    kernel = kernel or ("dense" if device == "cpu" else "fused")
    if (device, kernel) == ("cpu", "fused"):
        raise UserError("FBGEMM's fused kernels are not reliable on the CPU", where="kernel", given=kernel, allowed="dense")
    if device == "cpu":
        for path, collection in collections_of(model):
            if isinstance(collection, EmbeddingCollection):
                remedy = "train with recsys_lab.lightning.ShardedStrategy, which looks sequences up by PyTorch, or on a GPU"
                raise UserError("FBGEMM's dense look-up adds up sequences on the CPU", where=path or "the model", remedy=remedy)
    return as_placed(plan, model, device, kernel)


def as_placed(plan: ShardingPlan, model: nn.Module, device: str, kernel: str) -> tr.ShardingPlan:
    """What `to_torchrec` returns, for whom FBGEMM's kernels are no concern."""
    modules: dict[str, tr.ModuleShardingPlan] = {}
    for path, collection in collections_of(model):
        placements = []
        for config in _configs(collection):
            if config.name not in plan.by_table:
                raise UserError("the plan has no such table", where=path or "the model", given=config.name, allowed=_names(plan))
            table, placement = plan.by_table[config.name]
            if (table.rows, table.dim) != (config.num_embeddings, config.embedding_dim):
                size = f"{config.num_embeddings} x {config.embedding_dim}"
                raise UserError("the plan is of another size", where=config.name, given=size, allowed=f"{table.rows} x {table.dim}")
            torchrec_json.check_scheme(placement)
            if device == "cuda":
                _check_columns(placement)
            placements.append(placement)
        of_module = of_one_module(placements, plan.ranks_per_host, device)
        for sharding in of_module.values():
            if sharding.sharding_spec is not None:
                sharding.compute_kernel = kernel
        modules[path] = of_module
    return tr.ShardingPlan(modules)


def _check_columns(placement: Placement) -> None:
    if odd := next((shard.cols for shard in placement.shards if shard.rows and shard.cols % 4), None):
        where, given = f"table {placement.table}", f"{odd} columns in a shard"
        remedy = "an embedding_dim that is a multiple of 4, such as 12 for 10; or a sharder that does not cut it by columns there"
        raise UserError("FBGEMM's kernels for CUDA read four columns at a time", where=where, given=given, remedy=remedy)


def from_torchrec(plan: tr.ShardingPlan, model: nn.Module, hosts: int, ranks_per_host: int) -> ShardingPlan:
    """A plan that TorchRec's planner or the user made, as ours: `recsys_lab.plan.explain.explain` says what it means.

    Args:
        plan: TorchRec's, with an entry for each embedding collection of `model`.
        model: not sharded yet.
        hosts, ranks_per_host: of the processes that the plan is for.

    Returns:
        Placements of all pooled and sequence tables of `model`.

    Raises:
        UserError: for a module or a table that the plan lacks, and for shards that cannot be.

    >>> plan = api.plan(experiment(model, "cluster=h100x8", "sharder=torchrec_row_wise")).plan
    >>> from_torchrec(to_torchrec(plan, model, "cuda"), model, hosts=1, ranks_per_host=8).placements == plan.placements
    True
    """
    tables = tables_of(model)
    placements: list[Placement] = []
    for path, collection in collections_of(model):
        sharding = plan.get_plan_for_module(path)
        if sharding is None:
            raise UserError("the plan has no such module", where="plan", given=path or "the model", allowed=", ".join(plan.plan))
        of_module = tuple(table for table in tables if table.name in {config.name for config in _configs(collection)})
        if lacking := [table.name for table in of_module if table.name not in sharding]:
            raise UserError("the plan has no such table", where=path or "the model", given=", ".join(lacking))
        placements += placements_of(of_module, sharding)
    sharding_plan = ShardingPlan("torchrec", hosts, ranks_per_host, tables, tuple(placements))
    validate(sharding_plan)
    return sharding_plan


def read(path: Path | str, model: nn.Module, hosts: int, ranks_per_host: int) -> ShardingPlan:
    """A plan of TorchRec's from a file, as ours.

    Args:
        path: JSON, as TorchRec's `plan._serialize()` gives it.
        model, hosts, ranks_per_host: those of `from_torchrec`.

    Returns:
        What `from_torchrec` returns.

    Raises:
        UserError: for a file that cannot be read, and as `from_torchrec` does.

    >>> plan = api.plan(experiment(model, "cluster=h100x8", "sharder=torchrec_row_wise")).plan
    >>> with open("plan.json", "w") as file:
    ...     json.dump(to_torchrec(plan, model, "cuda")._serialize(), file)
    >>> read("plan.json", model, hosts=1, ranks_per_host=8).placements == plan.placements
    True
    """
    return torchrec_json.read(path, tables_of(model), hosts, ranks_per_host)


def experiment(model: nn.Module, *overrides: str, mean_ids: MeanIds = 1.0) -> Experiment:
    """An experiment on the tables of a TorchRec model, with the dense arch of `model=tables`.

    Args:
        model: pooled tables only (EmbeddingBagCollection).
        overrides: of run.py, such as "cluster=h100x64"; "model=tables_dcn" for DCN's dense arch.
        mean_ids: ids of a sample, by feature name (1 where it has none), or the same for all.

    Returns:
        What `recsys_lab.compose` returns.

    Raises:
        UserError: for wrong overrides, for a model without pooled tables, and for a feature of `mean_ids` that it has not.

    >>> experiment(model, "cluster=h100x16", mean_ids={"item": 42.5}).cluster.world_size
    16
    """
    bags = [collection for _, collection in collections_of(model) if isinstance(collection, EmbeddingBagCollection)]
    if not bags:
        raise UserError("no EmbeddingBagCollection", where=type(model).__name__, remedy="sequence tables: model=hstu and its kin")
    features = [name for collection in bags for config in collection.embedding_bag_configs() for name in config.feature_names]
    for name in mean_ids if isinstance(mean_ids, Mapping) else ():
        if name not in features:
            raise UserError(
                "no such feature", where="mean_ids", given=name, allowed=", ".join(features), remedy=did_you_mean(name, features)
            )
    shared = shared_features(config for collection in bags for config in collection.embedding_bag_configs())
    lines = [table_file(collection, mean_ids, shared).splitlines() for collection in bags]
    text = "\n".join([lines[0][0], *(line for file in lines for line in file[1:])]) + "\n"
    file = Path(tempfile.gettempdir(), f"recsys_lab_tables_{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv")
    file.write_text(text, encoding="utf-8")
    default_model = [] if any(override.startswith("model=") for override in overrides) else ["model=tables"]
    return api.compose(*default_model, f"model.file={file}", *overrides)


def simulate(model: nn.Module, plan: AnyPlan, *overrides: str, mean_ids: MeanIds = 1.0) -> api.Simulated:
    """What an iteration takes on the cluster that `overrides` name.

    Args:
        model, overrides, mean_ids: those of `experiment`.
        plan: TorchRec's, the Path of its JSON, or the name of a sharder of ours.

    Returns:
        What `recsys_lab.simulate` returns.

    Raises:
        UserError: as `experiment`, `read` and `from_torchrec` do.

    >>> simulate(model, "torchrec_row_wise", "cluster=h100x8").iteration_ms > 0
    True
    """
    if isinstance(plan, str):
        return api.simulate(experiment(model, *overrides, f"sharder={plan}", mean_ids=mean_ids))
    resolved = experiment(model, *overrides, mean_ids=mean_ids)
    hosts, ranks_per_host = resolved.cluster.hosts, resolved.cluster.ranks_per_host
    if isinstance(plan, Path):
        return api.simulate(resolved, given=read(plan, model, hosts, ranks_per_host))
    return api.simulate(resolved, given=from_torchrec(plan, model, hosts, ranks_per_host))


def compared(model: nn.Module, plans: Mapping[str, AnyPlan], *overrides: str, mean_ids: MeanIds = 1.0) -> pandas.DataFrame:
    """Plans side by side: which phase of an iteration takes the time, and what each rank holds.

    Args:
        model, overrides, mean_ids: those of `experiment`.
        plans: by any name, TorchRec's plans, the Paths of their JSON, or sharders of ours such as "neo_4d".

    Returns:
        A DataFrame, a row for each plan: ms of the iteration and of each phase, the bytes that the busiest rank sends, and GB it holds.
        Where a plan does not fit, `why_not` says which rank lacks how much, and what would fit.

    Raises:
        UserError: as `simulate` does.

    >>> compared(model, {"by rows": "torchrec_row_wise", "neo": "neo_4d"}, "cluster=h100x8").index.tolist()
    ['by rows', 'neo']
    """
    import pandas

    each = {name: torchrec_json.Priced.of(partial(simulate, model, plan, *overrides, mean_ids=mean_ids)) for name, plan in plans.items()}
    phases = dict.fromkeys(phase for priced in each.values() for phase in priced.phases_ms)
    columns = ["iteration_ms", *phases, "sent_mb", "tables_gb", *(["why_not"] if any(priced.why_not for priced in each.values()) else [])]
    rows = {name: asdict(priced) | dict(priced.phases_ms) for name, priced in each.items()}
    return pandas.DataFrame.from_dict(rows, orient="index").reindex(columns=columns)


def collections_of(model: nn.Module) -> Iterator[tuple[str, EmbeddingBagCollection | EmbeddingCollection]]:
    for path, module in model.named_modules():
        if isinstance(module, EmbeddingBagCollection | EmbeddingCollection):
            yield path, module


def _configs(collection: EmbeddingBagCollection | EmbeddingCollection) -> list[Any]:
    return collection.embedding_bag_configs() if isinstance(collection, EmbeddingBagCollection) else collection.embedding_configs()


def _names(plan: ShardingPlan) -> str:
    return ", ".join(table.name for table in plan.tables)


#: What users call. `as_placed` and `collections_of` are for other rooms.
__all__ = ["compared", "experiment", "from_torchrec", "read", "simulate", "tables_of", "to_torchrec"]
