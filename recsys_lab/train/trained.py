"""A trained model judged on the splits of its data, as one rank. Nothing is trained. Rank 0 writes the record and the predictions."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import torch.distributed as dist

from recsys_lab.config.options import PREDICT
from recsys_lab.data.loader import RankLoader
from recsys_lab.errors import cannot_write
from recsys_lab.record.result import Predictions, write_result
from recsys_lab.report.tracker import publish
from recsys_lab.train.evaluate import gathered
from recsys_lab.train.job import Job
from recsys_lab.train.next_items import next_items
from recsys_lab.train.objective import objective_of
from recsys_lab.train.rank import in_file_order, join, judged, logger_of, rank_loader, shard, with_quality
from recsys_lab.train.start_from import check_all_taken, take_weights

#: The split of `predictions`, and the one in its place where data have none.
PREDICTED = ("test", "validation")


def evaluate_here(job: Job) -> dict[str, Any] | None:
    """Judges the weights of `job` as the rank that the environment names. Returns the record (JSON) on rank 0, None elsewhere.

    Raises UserError where the model of its config is not the one that was trained.
    """
    assert job.weights is not None
    device, experiment = join(job), job.experiment
    data = experiment.open_data(job.most_rows)
    model = experiment.build_model(data, torch.device("meta"), experiment.sharder.modules(job.plan.towers))
    objective = objective_of(model.objective, data, experiment.trainer.evaluate_pairs, experiment.evaluate)
    sharded = shard(job, data, device, None, model, job.plan)
    started = take_weights(sharded, job.weights)
    check_all_taken(started)
    loader = partial(rank_loader, data, experiment, device)
    record = replace(job.record, started_from=started)
    if experiment.mode != PREDICT and data.learnable:
        record = with_quality(record, judged(sharded.module, objective, loader, job, data, device))
    if experiment.predictions is not None:
        split = next(name for name in PREDICTED if name in data.splits)
        split_loader = in_file_order(loader(split))
        if model.objective == "next_item":
            table = next_items(sharded.module, split_loader, data.held_out[split], data.item_names and data.item_names(), device)
        else:
            table = _predict(sharded.module, split_loader, device, data.labelled)
        if dist.get_rank() == 0:
            _write(Path(experiment.predictions), table)
        rows = len(table)
        record = replace(record, predictions=Predictions(experiment.predictions, split, rows))
    if dist.get_rank() == 0:
        write_result(job.folder, record)
        publish(logger_of(job), job.folder)
    dist.barrier()
    return record.to_json() if dist.get_rank() == 0 else None


@torch.no_grad()
def _predict(model: torch.nn.Module, loader: RankLoader, device: torch.device, labelled: bool) -> pl.DataFrame:
    """Row number, label (if `labelled`) and probability of every row of a split, in its order. Collective."""
    model.eval()
    parts = []
    for batch in loader:
        moved = batch.to(device, non_blocking=True)
        probabilities = model(moved.values, moved.sparse)[: batch.valid].double().sigmoid()
        parts.append(torch.stack([moved.labels[: batch.valid].double(), probabilities]))
    labels, probabilities = gathered(torch.cat(parts, dim=1)).numpy()
    rows = loader.positions_by_rank()
    order = np.argsort(rows)
    columns = {"row": rows, **({"label": labels.astype(np.int8)} if labelled else {}), "probability": probabilities}
    return pl.DataFrame({name: column[order] for name, column in columns.items()})


def _write(file: Path, table: pl.DataFrame) -> None:
    """Whole or not at all. Raises UserError."""
    partial_file = file.with_name(f".partial-{os.getpid()}-{file.name}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        table.write_parquet(partial_file)
        os.replace(partial_file, file)
    except OSError as error:
        raise cannot_write(error, file) from None
    finally:
        with contextlib.suppress(OSError):
            partial_file.unlink(missing_ok=True)
