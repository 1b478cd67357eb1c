"""What a run that resumes can go on with, and what then differs. It is asked before ranks start, and before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsys_lab.base.files import read_json
from recsys_lab.config.frozen import has_other_length, load, plain
from recsys_lab.config.options import TrainerOptions
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment
from recsys_lab.plan import ShardingPlan
from recsys_lab.train.checkpoint_folder import FOLDER, TRAINER_FILE, latest
from recsys_lab.train.column_cuts import column_cuts, merged_tables
from recsys_lab.train.same_bits import OtherBits, of_machine, other_bits
from recsys_lab.train.schedule import rate_ratio
from recsys_lab.units import counted


def goes_on(experiment: Experiment, data: DataSet, plan: ShardingPlan, folder: Path, before: ShardingPlan | None) -> list[str]:
    """Sentences on what differs from here on. None where nothing does.

    Args:
        experiment: as it resumes.
        plan: of what trains here.
        folder: of the run, with its config so far.
        before: the plan by which it has trained so far; None: it has not.

    Raises:
        UserError: it cannot go on so.
    """
    state = _state(folder)
    if state is None or not experiment.trains:
        return []
    if state.get("data") not in (None, data.fingerprint):
        from recsys_lab.train.checkpoint import check_data  # with torch, which nothing else here needs

        check_data(latest(folder / FOLDER) or folder, state, data.fingerprint)
    sentences, earlier = list[str](), plain(load(folder))
    if has_other_length(experiment.config, earlier):
        _check_length(experiment.trainer, experiment.train_steps(data), state)
    sentences += _rates(experiment, data, state)
    if experiment.optimizer.sparse.name == "row_wise_adagrad":
        cuts = state.get("columns", {} if before is None else column_cuts(before))
        if merged := merged_tables(cuts, plan):
            sentences.append(
                f"row-wise Adagrad's state of {counted(len(merged), 'table')} is the mean of its column shards, exact to rounding"
            )
    if before is not None:
        sentences += _moved(experiment, data, before, plan, earlier)
    return sentences


def _moved(experiment: Experiment, data: DataSet, before: ShardingPlan, now: ShardingPlan, config: Mapping[str, Any]) -> list[str]:
    """`config`: the plain one that it has so far."""
    many = {feature.table_name for feature in data.features if feature.mean_length != 1 and feature.pooling != "none"}
    one_id = [table.name for table in now.tables if table.name not in many]
    bits = other_bits(before, now, one_id, experiment.precision, experiment.optimizer.sparse.name)
    same_ranks = before.world_size == now.world_size
    bits = replace(bits, last=(*bits.last, *(of_machine(config, experiment.config, now.world_size) if same_ranks else ())))
    if bits == OtherBits() and before.placements == now.placements:
        return []
    return [bits.sentence()]


def _state(folder: Path) -> Mapping[str, Any] | None:
    """What the newest checkpoint says of the trainer; None where there is none, or a broken one, which the ranks name."""
    last = latest(folder / FOLDER)
    try:
        state = None if last is None else read_json(last / TRAINER_FILE)
    except UserError:
        return None
    return state if isinstance(state, Mapping) and isinstance(state.get("global_step"), int) else None


def _check_length(options: TrainerOptions, steps: int, state: Mapping[str, Any]) -> None:
    """UserError where a run that is to train for longer has trained longer already, or would not go on all the same."""
    done, where = state["global_step"], "trainer.max_epochs" if options.max_steps < 0 else "trainer.max_steps"
    if steps < done:
        raise UserError("the run has trained for longer already", where=where, given=f"{steps} steps", allowed=f"{done} steps or more")
    of_callbacks = state.get("callbacks", {})
    stopped: Mapping[str, Any] = next((own for name, own in of_callbacks.items() if name.startswith("ResumableEarlyStopping")), {})
    patience, waited = options.early_stopping.patience, stopped.get("wait_count", 0)
    if patience and waited >= patience:
        given, remedy = f"no better for {waited} evaluations", f"more patience: trainer.early_stopping.patience={waited + patience}"
        raise UserError("early stopping has ended this run", where=where, given=given, remedy=remedy)
    spent = of_callbacks.get("TimeLimit", {}).get("spent", 0.0) / 60
    if options.max_minutes and spent >= options.max_minutes:
        remedy = f"more time: trainer.max_minutes={math.ceil(spent + options.max_minutes)}"
        raise UserError("its time limit has ended this run", where=where, given=f"{spent:.1f} minutes spent", remedy=remedy)


def _rates(experiment: Experiment, data: DataSet, state: Mapping[str, Any]) -> list[str]:
    """Where the learning rate depends on the number of steps, and that has changed."""
    schedule, step, steps = experiment.optimizer.schedule, state["global_step"], experiment.train_steps(data)
    try:
        saved = state["lr_schedulers"][0]
        before = saved["_last_lr"][-1] / saved["base_lrs"][-1]
    except (LookupError, TypeError, ZeroDivisionError):
        return []
    now = rate_ratio(step, schedule, steps, -(-data.splits["train"].rows // experiment.data.batch_size))
    if math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-12):
        return []
    return [f"the {schedule.name} schedule is over {steps} steps now: the learning rate goes from {before:.3g} to {now:.3g} of its highest"]
