"""The tables of a run, from its last checkpoint, in the flat model of its config."""

from __future__ import annotations

from pathlib import Path

from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment
from recsys_lab.models.click_model import ClickModel
from recsys_lab.partition import probe
from recsys_lab.plan.serialise import load_plan
from recsys_lab.train import checkpoint, checkpoint_folder


def of_run(folder: Path, experiment: Experiment) -> tuple[ClickModel, DataSet]:
    """The flat model of a run with the tables of its last checkpoint, and its data. The dense arch is not read.

    Raises UserError where the run left no checkpoint.
    """
    last = checkpoint_folder.latest(folder / "checkpoints")
    if last is None:
        raise UserError("the run left no checkpoint", where=folder, remedy="name a run that trained, or give overrides to train a probe")
    plans = [folder / "plan_here.json", folder / "plan.json"]
    plan = load_plan(next((path for path in plans if path.exists()), plans[1]))
    data = experiment.open_data(max(table.rows for table in plan.tables))
    if any(feature.pooling == "none" for feature in data.features):
        probe.opened(experiment)
    model = probe.fresh(experiment, data, experiment.seed)
    checkpoint.checked_trainer(last)
    reader = checkpoint.Reader(last)
    for name, bag in probe.bags(model).items():
        reader.fill(checkpoint.whole(f"table.{name}.weight", bag.weight.data))
    return model.eval(), data
