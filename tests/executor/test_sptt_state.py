"""What towers leave behind: checkpoints that load on any placement, and one norm of the dense gradient on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.train.model_executor import TrainedModel
from recsys_lab.train.optimizer import DenseAndTables
from tests.executor import sharded as flat
from tests.executor.reference import EPS, LR, Sample, samples
from tests.executor.sharded import gathered, placed, step
from tests.executor.test_sharded_equals_unsharded import DENSE, close
from tests.executor.test_sptt_modules import MIX, TABLES, TOWERS, reference
from tests.executor.tower_cases import build, plan_here
from tests.ranks import run_ranks

ROWS = 16
State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Leg:
    """Part of a training, from one checkpoint to the next. `towers` None: the flat model, row-wise."""

    towers: str | None
    modules: bool
    schemes: tuple[str, ...]
    load: Path | None
    save: Path


def go_on(leg: Leg, batches: list[Sample]) -> tuple[State, State]:
    """Everything that is in a checkpoint, of this rank, as it was loaded and after `batches`, when it was saved."""
    if leg.towers is None:
        model = flat.build(TABLES, placed(TABLES, {"*": "row_wise"}), "adagrad", DENSE)
    else:
        model = build(plan_here(TABLES, TOWERS[leg.towers], leg.schemes, "none"), "adagrad", DENSE, leg.modules)
    dense = torch.optim.Adagrad([p for _, p in model.dense_parameters()], lr=LR, eps=EPS)
    trained = TrainedModel(model, DenseAndTables(dense, model.sparse_optimizer, LR))
    if leg.load is not None:
        checkpoint = trained.load(leg.load)
        trained.load_weights(checkpoint)
        trained.load_optimizers(checkpoint)
    loaded = state_of(model, dense)
    for batch in batches:
        step(model, dense, batch)
    trained.save({}, leg.save)
    return loaded, state_of(model, dense)


def state_of(model: ShardedModel, dense: torch.optim.Optimizer) -> State:
    """Whole tables with their state, and the dense parameters with theirs that this rank has."""
    tables, states = gathered(model, TABLES)
    state = tables | {f"{table}.{key}": value for table, of in states.items() for key, value in of.items()}
    for name, parameter in model.dense_parameters():
        state |= {name: parameter.detach().clone(), f"{name}.sum": dense.state[parameter]["sum"].clone()}
    return state


def through(tmp_path: Path, legs: list[tuple[tuple[int, int], str | None, bool, tuple[str, ...]]], batches: list[Sample]) -> State:
    """The state after all legs, each with its part of `batches`; whatever a rank loads is, to the bit, what was saved."""
    state: State = {}
    each = len(batches) // len(legs)
    for number, (shape, towers, modules, schemes) in enumerate(legs):
        load, save = (tmp_path / f"step={number + at}" for at in (0, 1))
        leg = Leg(towers, modules, schemes, load if number else None, save)
        ranks = run_ranks(go_on, *shape, leg, batches[number * each : (number + 1) * each])
        for loaded, _ in ranks:
            assert not state or all(torch.equal(value, state[name]) for name, value in loaded.items())
        state = {name: value for _, after in ranks for name, value in after.items()}
    return state


def test_tower_modules_go_on_on_any_placement(tmp_path: Path) -> None:
    batches = samples(TABLES, 6, ROWS, DENSE)
    legs = [((2, 2), "two", True, MIX), ((4, 1), "two", True, ("column_wise",)), ((1, 1), "two", True, MIX)]
    at_once = through(tmp_path / "once", [((1, 1), "two", True, MIX)], batches)
    close(through(tmp_path / "legs", legs, batches), at_once, "three placements")
    assert any(name.startswith("tower_modules.1.") for name in at_once)


def test_tables_in_towers_go_row_wise_and_back(tmp_path: Path) -> None:
    batches = samples(TABLES, 6, ROWS, DENSE)
    legs = [((2, 2), "two", False, MIX), ((1, 2), None, False, ()), ((4, 1), "four", False, ("column_wise",))]
    at_once = through(tmp_path / "once", [((1, 1), None, False, ())], batches)
    close(through(tmp_path / "legs", legs, batches), at_once, "towers, row-wise, towers")


def norm_of_gradient(batches: list[Sample]) -> torch.Tensor:
    model = build(plan_here(TABLES, TOWERS["four"], MIX, "none"), "sgd", DENSE, True)
    part = batches[0].part(dist.get_rank(), dist.get_world_size())
    binary_cross_entropy_with_logits(model.module(part.dense, part.sparse), part.labels).backward()
    return model.dense_gradient_norm()


def test_all_ranks_clip_by_the_norm_of_the_whole_dense_gradient() -> None:
    grads = reference("four", "sgd").dense_grads.values()
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    norms = run_ranks(norm_of_gradient, 2, 2, samples(TABLES, 20, ROWS, DENSE)[:1])
    assert all(torch.equal(one, norms[0]) for one in norms)
    torch.testing.assert_close(norms[0], norm)
