"""One run, whole: the only place where all the rooms meet.

config ──> cluster ─┐
           tables ──┤                       ┌─> ranks      (here, or on the real cluster)  ─> measured ─┐
data ───> access ───┼─> planner ─> plan ─> steps                                                       ├─> record ─> page, W&B
         workload ──┤                       └─> simulator  (the cluster that is named)     ─> simulated ┘
         precision ─┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from recsys_lab.base.files import out_file, write_json
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config.folders import VOCABULARY, save_words
from recsys_lab.config.frozen import save
from recsys_lab.experiment import Experiment
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.serialise import load_plan, save_plan
from recsys_lab.planning import (
    bounds,
    in_run,
    most_rows_here,
    plan_for,
    plan_here,
    price,
    replan,
    sent_bytes,
    with_bounds,
    with_interval,
)
from recsys_lab.record.environment import check_rows, write_environment
from recsys_lab.record.loggers import libraries
from recsys_lab.record.metrics import NEXT_ITEM_PROTOCOL
from recsys_lab.record.result import CHOICES, RESULT_FILE, Result, plan_summary, write_result
from recsys_lab.record.run_folder import REASONS_FILE, STORES_FILE
from recsys_lab.report import say
from recsys_lab.report.advice import small_words
from recsys_lab.report.tracker import publish
from recsys_lab.simulate import write_trace
from recsys_lab.store_curve import store_curve
from recsys_lab.train.checkpoint_folder import trained
from recsys_lab.train.job import Job, train
from recsys_lab.train.resume import goes_on

PLAN, PLAN_HERE = "plan.json", "plan_here.json"


def plan_that_trained(folder: Path) -> ShardingPlan | None:
    """The one by which the run in `folder` has trained so far; None where it has not."""
    return next((load_plan(folder / name) for name in (PLAN_HERE, PLAN) if (folder / name).is_file()), None)


def run(
    experiment: Experiment, folder: Path, sweep: str | None = None, writes: bool = True, words: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Runs `experiment` in `folder` and returns the record; None where the ranks start later. Raises UserError, PlanDoesNotFit, RankLost.

    `writes`: False on torchrun's ranks other than 0, which do the same but write nothing. They return None. `words`: all of a run that
    resumes with others. Its folder keeps them, and its config, once nothing refuses them.
    """
    quiet_torchrec()
    if writes and not experiment.resume:
        save(experiment.config, folder)
    weights = trained(Path(experiment.start_from)) if experiment.start_from is not None else None
    if experiment.predictions is not None:
        out_file(experiment.predictions, "predictions", (".parquet",))
    if experiment.starts_ranks:
        experiment.launcher.prepare(libraries(experiment.logger))
    data = experiment.open_data()
    experiment, loss = experiment.with_default_hyperparameters(data), experiment.model.loss
    if experiment.model.loss != loss:
        data = experiment.open_data()  # with the negatives of the loss that was chosen
    experiment.check(data)
    if weights is not None and not experiment.trains:
        check_rows(weights.parent.parent, data.own_rows)
    say.data(data)
    say.chosen(experiment.chosen)
    say.growth(experiment.simulate.length_growth, experiment.simulate.skew_growth)
    say.planning(experiment.cluster, len({feature.table_name for feature in data.features}))
    if (towers := experiment.sharder.towers) is not None and towers.probes:
        say.towers(towers.strategy, towers.probe_steps)
    named = plan_for(experiment, data)
    say.plan(named.plan, named.cluster)
    say.stores(named.stores)
    if experiment.sharder.dedup is not False:
        say.dedup(experiment.sharder.dedup, named.workload.dedup, *sent_bytes(named))
        experiment = replace(experiment, sharder=experiment.sharder.with_dedup(named.workload.dedup))
    simulated, timeline = price(named, experiment.profile) if experiment.simulates else (None, None)
    known = simulated is not None and simulated.calibrated
    if simulated is not None and not known:
        say.not_calibrated(simulated.cluster)
    elif simulated is not None:
        simulated = with_bounds(with_interval(simulated, named, experiment.profile), named, experiment, data)
        say.simulated(simulated, named.steps.batch_size, small_words(asdict(simulated), named.plan, experiment.choices))
    rows = most_rows_here(experiment, named) if experiment.starts_ranks else None
    here = plan_here(experiment, data, named, rows) if experiment.starts_ranks else named
    say.trains_here(named.plan, here.plan)
    if experiment.resume:
        for sentence in goes_on(experiment, data, here.plan, folder, plan_that_trained(folder)):
            say.resumes(sentence)
    if simulated is not None and known and experiment.trains and here is named and named.plan.has_stores:
        simulated = replace(simulated, in_run=in_run(experiment, named, experiment.train_steps(data)))
        say.in_run(simulated)

    compared = None
    if writes and experiment.compares(data):
        from recsys_lab.train.baselines import fitted

        compared = fitted(data if rows is None else experiment.open_data(rows), experiment.seed)
    of_items = None
    if writes and experiment.compares_items(data):
        from recsys_lab.train.item_baselines import item_baselines

        of_items = item_baselines(data, experiment.seed)
    record = Result(
        status="completed",
        mode=experiment.mode,
        seed=experiment.seed,
        config_fingerprint=experiment.fingerprint,
        choices={group: choice for group, choice in experiment.choices.items() if group in CHOICES},
        plan_fingerprint=named.plan.fingerprint,
        plan=plan_summary(named.plan, named.access, named.workload, named.stores),
        simulated=simulated,
        chosen=experiment.chosen or None,
        baselines=compared.figures if compared else None,
        item_baselines=of_items,
        protocol=NEXT_ITEM_PROTOCOL if experiment.judges and experiment.model.objective == "next_item" else None,
        unknown_values=data.unknown_values or None,
    )
    if writes and experiment.resume:
        (folder / RESULT_FILE).unlink(missing_ok=True)  # of its end before, where it now trains for longer
        save(experiment.config, folder)
        if words:
            save_words(folder, words)
    if writes:
        of_data = {"notes": list(data.notes), "best_auc": dict(data.best_auc), "fingerprint": data.fingerprint, "own_rows": data.own_rows}
        write_environment(folder, data=of_data)
        if data.keep is not None and experiment.trains:
            data.keep(folder / VOCABULARY)
        save_plan(named.plan, folder / PLAN)
        (folder / PLAN_HERE).unlink(missing_ok=True)  # of a run that resumes elsewhere
        if here is not named:
            save_plan(here.plan, folder / PLAN_HERE)
        reasons = experiment.sharder.planner.reasons(named.plan, named.inputs) if named.cluster.calibrated else None
        if reasons is not None:
            write_json(folder / REASONS_FILE, {"told": reasons.explanation(), "reasons": reasons.to_json()})
        if simulated is not None and known and (curve := store_curve(experiment, named, simulated)) is not None:
            write_json(folder / STORES_FILE, asdict(curve))
        if timeline is not None and known:
            write_trace(timeline, folder / "trace.json", bounds(named, experiment.profile, timeline))
    if experiment.starts_ranks:
        again, start = partial(replan, experiment, here, named), compared.start if compared else None
        job = Job(experiment, folder, here.plan, here.steps, record, again, rows, sweep, start, weights)
        written = experiment.launcher.launch(train, {"job": job}, folder)
    else:
        written = record.to_json()
        write_result(folder, record)
        if writes:
            publish(experiment.logger(folder, experiment.config, experiment.title("model", "sharder", "cluster"), sweep), folder)
    return written
