"""Checks that every sharding scheme must pass, made from its own reference cases: a new scheme cannot be forgotten."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.config.choices import composed
from recsys_lab.config.command_line import CONF
from recsys_lab.config.schema import build
from recsys_lab.errors import UserError
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.scheme import Scheme, known_schemes, schemes_of
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.schemes.whole.placement import COLUMN_WISE, in_columns
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.dmt import DMT
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.tables import AccessStatistics, Table, TableAccess, power_law_access
from tests.executor.reference import Concat, Outcome, samples, train_unsharded
from tests.executor.sharded import hot_rows_of, small_cluster, train
from tests.executor.test_sharded_equals_unsharded import check
from tests.plan.plans import FP32, SCHEMES, workload
from tests.plan.test_volume import in_order_of_kind
from tests.ranks import run_ranks

#: Rows that no number of ranks divides, fewer rows than ranks, two widths, and two features on one table.
POOLED = (Table("odd", 11, 16, ("f_odd",)), Table("tiny", 3, 8, ("f_tiny",)), Table("shared", 30, 16, ("f_left", "f_right")))
SEQUENCES = tuple(replace(table, dim=16, pooling="none") for table in POOLED)
OPTIMIZERS = ("sgd", "adagrad", "row_wise_adagrad", "adam", "lamb")
STEPS, ROWS, DENSE, BATCH = 4, 12, 3, 6


@dataclass(frozen=True)
class Case:
    """`scheme`: of its tables, or of sequences that a sharder has placed the first one's."""

    scheme: str
    plan: ShardingPlan

    @property
    def pooling(self) -> str:
        return self.plan.tables[0].pooling

    def __str__(self) -> str:
        return f"{self.plan.sharder} {self.scheme} {self.pooling} {self.plan.hosts}x{self.plan.ranks_per_host} {self.plan.permute}"


def cases(scheme: Scheme, hosts: int, ranks_per_host: int) -> Iterator[Case]:
    """Its reference plans of pooled tables, and of sequences where it takes them; without those that it says cannot run."""
    for pooling in ("sum", "mean", *(["none"] if scheme.sequences else [])):
        tables = SEQUENCES if pooling == "none" else tuple(replace(table, pooling=pooling) for table in POOLED)
        for plan in scheme.reference_cases(tables, hosts, ranks_per_host):
            try:
                if scheme.check_execution:
                    scheme.check_execution(list(plan.by_table.values()))
            except UserError:
                continue
            yield Case(scheme.name, plan)


def all_cases(hosts: int, ranks_per_host: int) -> list[Case]:
    return [case for scheme in SCHEMES.values() for case in cases(scheme, hosts, ranks_per_host)]


def planned_sequences(hosts: int, ranks_per_host: int) -> list[Case]:
    """Sequences as every sharder that takes them plans them, and by columns: in any order, and two shards of a table on one rank."""
    met = [in_columns(t, COLUMN_WISE, [(2 - n, *cols) for cols in ((0, 8), (8, 16))]) for n, t in enumerate(SEQUENCES)]
    more = [TorchRec(force={"odd": "column_wise"}), Neo4D(schemes=["column_wise"])]
    plans = plans_of_sequences(SEQUENCES, hosts, ranks_per_host, more)
    plans.append(ShardingPlan("by_hand", hosts, ranks_per_host, SEQUENCES, tuple(met)))
    return [Case(plan.placements[0].scheme, plan) for plan in dict.fromkeys(plans)]


def plans_of_sequences(tables: tuple[Table, ...], hosts: int, ranks_per_host: int, more: Sequence[Sharder] = ()) -> list[ShardingPlan]:
    """`tables` of sequences as each choice in conf/sharder plans them, but for those with towers. Then by columns, and by `more`."""
    access = AccessStatistics({table.name: power_law_access(table.name, table.rows, 3.0, 1.1) for table in tables})
    work = workload(lengths={table.name: 3.0 for table in tables})
    inputs = PlanInputs(tables, access, small_cluster(hosts, ranks_per_host), FP32, work)
    chosen = [build(composed("sharder", name).planner) for name in sorted(path.stem for path in (CONF / "sharder").glob("*.yaml"))]
    sharders = [*chosen, TorchRec(force={"*": "column_wise"}), *more]
    return list(dict.fromkeys(sharder.plan(inputs) for sharder in sharders if not isinstance(sharder, DMT)))


def plans_of_scheme(tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> list[ShardingPlan]:
    """`tables` of sequences as the reference plans of every scheme that takes them have them."""
    schemes = [scheme for scheme in SCHEMES.values() if scheme.sequences]
    return [plan for scheme in schemes for plan in scheme.reference_cases(tables, hosts, ranks_per_host)]


def check_plans(checked: Sequence[Case]) -> None:
    """The plans are valid, and of the scheme alone."""
    for case in checked:
        validate(case.plan)
        assert {scheme.name for scheme in schemes_of(case.plan)} <= {case.scheme, *_family(case.scheme)}, case


def _family(name: str) -> set[str]:
    family = known_schemes()[name].family
    return {scheme.name for scheme in known_schemes().values() if family and scheme.family == family}


def check_equality(checked: Sequence[Case], dedup: bool = False) -> None:
    """Training equals that of the same model in one process with whole tables; optimizers in turns. All cases of one shape."""
    jobs = [(case, OPTIMIZERS[number % len(OPTIMIZERS)]) for number, case in enumerate(checked)]
    batches = {plan.tables: samples(plan.tables, STEPS, ROWS, DENSE) for plan in (case.plan for case in checked)}
    first = checked[0].plan
    plans = [(case.plan, optimizer) for case, optimizer in jobs]
    ranks = run_ranks(_train_all, first.hosts, first.ranks_per_host, plans, batches, _modules(checked), dedup)
    references: dict[tuple[tuple[Table, ...], str], Outcome] = {}
    for number, (case, optimizer) in enumerate(jobs):
        tables = case.plan.tables
        if (tables, optimizer) not in references:
            references[tables, optimizer] = train_unsharded(tables, batches[tables], optimizer, DENSE)
        columns_cut = any(shard.cols < table.dim for table, placement in case.plan.by_table.values() for shard in placement.shards)
        check([rank[number] for rank in ranks], references[tables, optimizer], f"{case} {optimizer}", columns_cut, optimizer)


def _modules(checked: Sequence[Case]) -> list[str]:
    """By importing which a process knows the schemes, also those outside recsys_lab."""
    return sorted({scheme.execution.partition(":")[0] for case in checked for scheme in schemes_of(case.plan)})


def _train_all(plans: Sequence[tuple[ShardingPlan, str]], batches: dict, modules: list[str], dedup: bool) -> list[Outcome]:
    for module in modules:
        importlib.import_module(module)
    return [train(plan.tables, plan, batches[plan.tables], optimizer, DENSE, dedup=dedup) for plan, optimizer in plans]


def check_volume(checked: Sequence[Case], precision: Precision = FP32, sync: str = "gradients", dedup: bool = False) -> None:
    """The collectives that are recorded in a training step equal the plan's steps on every rank. All cases of one shape.

    `dedup`: of batches with each row BATCH times, so that each is certainly there.
    """
    first = checked[0].plan
    plans = [case.plan for case in checked]
    how = precision, sync, dedup
    recorded = run_ranks(_record_all, first.hosts, first.ranks_per_host, plans, how, _modules(checked), backend="recorded")
    for number, case in enumerate(checked):
        model: nn.Module = Concat(case.plan.tables, DENSE, torch.device("meta"))
        dense = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("embeddings."))
        steps = lower(case.plan, _access(case.plan, times_of(dedup)), precision, workload(BATCH, dense, dedup=dedup), sync=sync)
        for rank, collectives in enumerate(recorded):
            expected = in_order_of_kind([(kind, group, round(size)) for kind, group, size in steps.collectives_of(rank)])
            assert in_order_of_kind(collectives[number]) == expected, f"{case}, {precision.name}, rank {rank}"


def _record_all(
    plans: Sequence[ShardingPlan], how: tuple[Precision, str, bool], modules: list[str]
) -> list[list[tuple[str, tuple[int, ...], int]]]:
    for module in modules:
        importlib.import_module(module)
    return [_record_one_step(plan, *how) for plan in plans]


def _record_one_step(plan: ShardingPlan, precision: Precision, sync: str, dedup: bool) -> list[tuple[str, tuple[int, ...], int]]:
    """In the fourth step: by then DistributedDataParallel has laid its buckets out anew."""
    model = Concat(plan.tables, DENSE, torch.device("meta"))
    optimizer, hot = ("adagrad", 0.1, 1e-8, 0.0), hot_rows_of(plan)
    sharded = shard(model, plan, torch.device("cpu"), optimizer, precision, 1, hot_rows=hot, dedup=dedup, sync=sync)  # type: ignore[arg-type]
    dense = torch.optim.SGD((p for _, p in sharded.dense_parameters()), lr=0.1)
    for step in range(4):
        if step == 3:
            start_recording()
        sharded.sparse_optimizer.zero_grad()
        dense.zero_grad()
        sharded.module(torch.rand(BATCH, DENSE), _batch(plan, times_of(dedup))).sum().backward()
        sharded.sparse_optimizer.step()
        dense.step()
    collectives = [(one.kind, one.group, one.bytes) for one in stop_recording()]
    close_groups()
    return collectives


def times_of(dedup: bool) -> int:
    return BATCH if dedup else 1


def _batch(plan: ShardingPlan, times: int) -> KeyedJaggedTensor:
    """Each row of a table so many times for each of its features, in an order of the rank's own: every cut of rows gets its exact share."""
    draw = np.random.default_rng(dist.get_rank())
    features = {feature: table.rows for table in plan.tables for feature in table.features}
    ids = [draw.permutation(np.tile(np.arange(rows), times)) for rows in features.values()]
    lengths = [np.diff(np.linspace(0, rows * times, BATCH + 1).astype(int)) for rows in features.values()]
    values, counts = torch.from_numpy(np.concatenate(ids)), torch.from_numpy(np.concatenate(lengths).astype(np.int32))
    return KeyedJaggedTensor(list(features), values, lengths=counts)


def _access(plan: ShardingPlan, times: int) -> AccessStatistics:
    """Of those batches."""
    p = {table.name: times * len(table.features) / BATCH for table in plan.tables}
    return AccessStatistics(
        {t.name: TableAccess(t.name, t.rows * p[t.name], (t.rows,), (p[t.name],), "formula", "uniform") for t in plan.tables}
    )
