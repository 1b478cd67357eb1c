"""One run, whole: the only place where all the rooms meet.

config ──> cluster ─┐
           tables ──┤                       ┌─> ranks      (here, or on the real cluster)  ─> measured ─┐
data ───> access ───┼─> planner ─> plan ─> steps                                                       ├─> record ─> page, W&B
         workload ──┤                       └─> simulator  (the cluster that is named)     ─> simulated ┘
         precision ─┘
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recsys_lab.cluster import Cluster
from recsys_lab.config.frozen import fingerprint, plain
from recsys_lab.config.schema import build
from recsys_lab.inputs import build_model, check_data, open_capped, open_data
from recsys_lab.plan.serialise import save_plan
from recsys_lab.planning import Planned, modules_of, most_rows_here, named_batch_size, plan_for, plan_here, replan, write_reasons
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.record.environment import write_environment
from recsys_lab.record.loggers import finish
from recsys_lab.record.result import CHOICES, Result, plan_summary, write_result
from recsys_lab.report import say
from recsys_lab.report.page import write_page
from recsys_lab.simulate import Profile, simulate, write_trace
from recsys_lab.train.rank import Job, train


def run(config: DictConfig, folder: Path, sweep: str | None = None, writes: bool = True) -> dict[str, Any] | None:
    """Runs `config` (frozen) in `folder` and returns the record. Raises UserError, PlanDoesNotFit, RankLost.

    `writes`: False on torchrun's ranks other than 0, which do the same but write nothing; they return None.
    """
    quiet_torchrec()
    if writes:
        OmegaConf.save(config, folder / "config.yaml")
    cluster: Cluster = build(config.cluster)
    data = open_data(config)
    check_data(data, config)
    say.data(data)
    named = plan_for(cluster, data, config, named_batch_size(config, cluster))
    say.plan(named.plan, cluster)
    simulated, timeline = None, None
    if config.mode in ("auto", "simulate"):
        simulated, timeline = simulate(named.steps, cluster, profile_of(config), named.plan, named.workload)
        say.simulated(simulated)
    trains = config.mode in ("auto", "train")
    rows = most_rows_here(named) if trains else None
    here = plan_here(config, data, named, rows) if trains else named
    say.trains_here(named.plan, here.plan)

    record = Result(
        status="completed",
        mode=config.mode,
        seed=config.seed,
        config_fingerprint=fingerprint(config),
        choices={group: choice for group, choice in config.choices.items() if group in CHOICES},
        plan_fingerprint=named.plan.fingerprint,
        plan=plan_summary(named.plan, named.access, named.workload),
        simulated=simulated,
    )
    if writes:
        write_environment(folder, data={"notes": list(data.notes), "best_auc": dict(data.best_auc)})
        save_plan(named.plan, folder / "plan.json")
        if here is not named:
            save_plan(here.plan, folder / "plan_here.json")
        write_reasons(config, named, folder)
        if timeline is not None:
            write_trace(timeline, folder / "trace.json")
    if trains:
        written = train_here(config, folder, here, named, rows, record, sweep)
    else:
        written = record.to_json()
        write_result(folder, record)
        log_untrained(config, folder, sweep)
    if writes and written is not None:
        write_page(folder)
    return written


def profile_of(config: DictConfig) -> Profile:
    """The named profile; its input distribution overlaps where the executor's does."""
    profile: Profile = build(config.simulate.profile)
    return profile.pipelined if config.sharder.executor.get("pipeline") else profile


def train_here(
    config: DictConfig, folder: Path, here: Planned, named: Planned, rows: int | None, record: Result, sweep: str | None
) -> dict[str, Any] | None:
    """Trains on the ranks that the launcher starts. The record on rank 0; None on others, and where ranks start later."""
    job = Job(
        config=plain(config),
        folder=folder,
        plan=here.plan,
        steps=here.steps,
        record=record,
        open_data=partial(open_capped, rows=rows),
        build_model=partial(build_model, towers=modules_of(config, here.plan.towers)),
        replan=partial(replan, here=here, named=named),
        sweep=sweep,
    )
    return build(config.launcher, train, {"job": job}, folder)


def log_untrained(config: DictConfig, folder: Path, sweep: str | None) -> None:
    """The logger's run of a job that plans and simulates only."""
    name = "_".join(str(config.choices[group]) for group in ("model", "sharder", "cluster"))
    logger = build(config.logger, folder, plain(config), name, sweep)
    finish(logger, "completed")
