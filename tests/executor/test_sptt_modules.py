"""Tower modules on their sites train as the same tower model does in one process, and stay on their sites."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample, samples
from tests.executor.test_sharded_equals_unsharded import DENSE, close
from tests.executor.tower_cases import TowerConcat, Towers, build, plan_here, train, train_unsharded
from tests.ranks import RankFailed, run_ranks

STEPS, ROWS = 20, 16
#: Sums and means, features that share a table, fewer rows than ranks; towers list features in an order of their own.
TABLES = (
    Table("odd", 11, 8, ("f_odd",)),
    Table("tiny", 3, 8, ("f_tiny",), "mean"),
    Table("shared", 30, 8, ("f_left", "f_right"), "mean"),
    Table("more", 9, 8, ("f_more",)),
    Table("last", 17, 8, ("f_last",)),
)
TOWERS: dict[str, Towers] = {
    "two": (("f_right", "f_tiny", "f_left"), ("f_last", "f_odd", "f_more")),
    "four": (("f_tiny",), ("f_right", "f_left"), ("f_more", "f_odd"), ("f_last",)),
    "one": (("f_right", "f_tiny", "f_left", "f_last", "f_odd", "f_more"),),
}
MIX = ("row_wise", "table_wise", "column_wise")
#: (towers, schemes, permute, tables' optimizer)
CASES = [
    ("two", ("column_wise",), "none", "sgd"),
    ("two", MIX, "rows", "adam"),
    ("four", MIX, "ids", "adagrad"),
    ("four", ("table_wise",), "none", "adam"),
    ("one", MIX, "none", "sgd"),
]
Case = tuple[str, tuple[str, ...], str, str]


def train_cases(batches: list[Sample], cases: list[Case]) -> list[Outcome]:
    return [train(plan_here(TABLES, TOWERS[t], schemes, permute), batches, opt, DENSE, True) for t, schemes, permute, opt in cases]


@cache
def reference(towers: str, optimizer: str) -> Outcome:
    return train_unsharded(TABLES, TOWERS[towers], samples(TABLES, STEPS, ROWS, DENSE), optimizer, DENSE)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(2, 2), (4, 1), (1, 2), (4, 2), (1, 1)])
def test_a_tower_model_trains_as_in_one_process(hosts: int, ranks_per_host: int) -> None:
    batches = samples(TABLES, STEPS, ROWS, DENSE)
    ranks = run_ranks(train_cases, hosts, ranks_per_host, batches, CASES, timeout_s=150)
    for number, (towers, schemes, permute, optimizer) in enumerate(CASES):
        whole, what = reference(towers, optimizer), f"{towers} {schemes} {permute} {optimizer}"
        sites = min(hosts, len(TOWERS[towers]))
        here = [outcome[number] for outcome in ranks]
        torch.testing.assert_close(torch.cat([o.logits for o in here]), whole.logits, rtol=1e-5, atol=1e-6)
        for rank, outcome in enumerate(here):
            site = rank // (hosts * ranks_per_host // sites)
            own = {name for name in whole.dense if _site_of(name, len(TOWERS[towers]), sites) in (None, site)}
            assert outcome.dense.keys() == own, what
            close(outcome.dense_grads, {name: whole.dense_grads[name] for name in own}, f"{what}, dense gradients")
            close(outcome.dense, {name: whole.dense[name] for name in own}, f"{what}, dense part")
            close(outcome.tables, whole.tables, f"{what}, tables")
            for name, state in whole.state.items():
                close(outcome.state[name], state, f"{what}, optimizer state of {name}")
            mate = here[site * (len(here) // sites)].dense  # the first rank of the site
            assert all(torch.equal(parameter, mate[name]) for name, parameter in outcome.dense.items()), f"{what}: site-mates differ"


def _site_of(name: str, towers: int, sites: int) -> int | None:
    """Of a tower module's parameter; None of the global dense part."""
    return int(name.split(".")[1]) // (towers // sites) if name.startswith("tower_modules.") else None


def touched(batches: list[Sample]) -> list[torch.Tensor]:
    """Outputs of a model whose tower 1 is stretched on its own site only, and of one that is not."""
    names = []
    for stretched in (False, True):
        sharded = build(plan_here(TABLES, TOWERS["two"], MIX, "none"), "sgd", DENSE, True)
        with torch.no_grad():
            for name, parameter in sharded.dense_parameters():
                if stretched and name.startswith("tower_modules.1."):
                    parameter.mul_(3)
        part = batches[0].part(dist.get_rank(), dist.get_world_size())
        sharded.module.eval()
        assert not any(module.training for module in sharded.local_modules.modules())
        with torch.no_grad():
            names.append(sharded.module(part.dense, part.sparse))
    return names


def test_a_module_works_on_its_site_for_the_samples_of_all_ranks() -> None:
    for plain, stretched in run_ranks(touched, 2, 2, samples(TABLES, 1, ROWS, DENSE)):
        assert (plain != stretched).all()


def other_towers() -> None:
    from recsys_lab.executor.shard import shard
    from tests.executor.sharded import FP32

    plan = plan_here(TABLES, TOWERS["two"], MIX, "none")
    model = TowerConcat(TABLES, DENSE, torch.device("meta"), TOWERS["two"][::-1])
    shard(model, plan, torch.device("cpu"), ("sgd", 0.1, 1e-8, 0.0), FP32, 1)  # type: ignore[arg-type]


def test_a_model_with_other_towers_than_the_plan_is_refused() -> None:
    assert UserError.exit_code == 2
    with pytest.raises(RankFailed, match="UserError: towers: the model has other towers than the plan"):
        run_ranks(other_towers, 2, 1)
