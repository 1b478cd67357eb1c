"""The bill of each row: the figures of its plan and its cluster, and what is assumed where nothing says more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recsys_lab.cluster import Cluster, Price
from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.answer import cheapest_first
from recsys_lab.decide.bill import Bill, Costs, bill_of
from recsys_lab.decide.checkpoint import read_gb_s, write_gb_s
from recsys_lab.decide.rows import Row
from recsys_lab.decide.run_asked import RESTART_MINUTES, RunAsked, Spot

#: Samples evaluated for each that is trained, where the data are generated and say nothing of a real validation. A guess.
EVALUATED = 0.05
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class WholeRun:
    """What all bills share.

    `samples`: trained; `hours_on`: on which cluster they take the hours that were asked for. `evaluated`: samples evaluated for each of
    them; `evaluated_by`: who says so.
    """

    asked: RunAsked
    samples: float
    evaluated: float
    evaluated_by: str
    hours_on: str | None = None


def whole_run(asked: RunAsked, rows: Sequence[Row], data: DataSet, evaluate_every_epochs: int) -> WholeRun | None:
    """None where no length is asked for, or nothing fits."""
    able = [row for row in rows if row.fits and row.samples_per_second is not None]
    if not asked.is_billed or not able:
        return None
    samples = asked.samples
    if samples is None:
        of_first = [row for row in able if (row.cluster, row.profile) == (able[0].cluster, able[0].profile)]
        samples = (asked.hours or 0.0) * SECONDS_PER_HOUR * (min(of_first, key=cheapest_first).samples_per_second or 0.0)
    evaluated, by = _evaluated(asked, samples, data, evaluate_every_epochs)
    return WholeRun(asked, samples, evaluated, by, able[0].cluster if asked.hours else None)


def _evaluated(asked: RunAsked, samples: float, data: DataSet, every_epochs: int) -> tuple[float, str]:
    if asked.evaluation is not None:
        return asked.evaluation, "given"
    if data.best_auc or not data.learnable:
        return EVALUATED, "assumed, as the data are generated; evaluation=0.05 sets it"
    validation, train = data.splits["validation"].rows, data.splits["train"].rows
    if not every_epochs:
        return validation / samples, "the validation split once, at the end"
    return validation / (train * every_epochs), "the validation split by trainer.evaluate_every_epochs"


def with_bills(rows: Sequence[Row], run: WholeRun | None, clusters: Mapping[str, Cluster]) -> list[Row]:
    """`rows`, each that fits with its bill, and with one at the spot price of its cluster if there is an offer."""
    if run is None:
        return list(rows)
    return [row if row.ms is None or not row.fits else _billed(row, run, clusters[row.cluster]) for row in rows]


def _billed(row: Row, run: WholeRun, cluster: Cluster) -> Row:
    spot = run.asked.spot.get(row.cluster)
    return replace(row, bill=_bill(row, run, cluster), spot_bill=_bill(row, run, cluster, spot) if spot else None)


def _bill(row: Row, run: WholeRun, cluster: Cluster, spot: Spot | None = None) -> Bill:
    assert row.samples_per_second is not None and row.forward_share is not None
    training = run.samples / row.samples_per_second / SECONDS_PER_HOUR
    price: Spot | Price | None = spot or row.price
    usd = price.usd_per_device_hour if price is not None else None
    evaluation = training * run.evaluated * row.forward_share
    return bill_of(
        training,
        evaluation,
        costs_of(row, run.asked, cluster, spot),
        cluster.world_size,
        usd,
        spot is not None,
    )


def costs_of(row: Row, asked: RunAsked, cluster: Cluster, spot: Spot | None = None) -> Costs:
    """What a run of `row` meets beside its work. Interruptions of a spot offer come on top of failures."""
    assert row.checkpoint_gb is not None
    write, read = (asked.checkpoint_gb_s or gb_s for gb_s in (write_gb_s(cluster), read_gb_s(cluster)))
    restart = RESTART_MINUTES if asked.restart_minutes is None else asked.restart_minutes
    an_hour = cluster.world_size / cluster.failures.device_hours if cluster.failures else 0.0
    an_hour += cluster.hosts * spot.interruptions if spot else 0.0
    return Costs(
        checkpoint=row.checkpoint_gb / write / SECONDS_PER_HOUR,
        restart=restart / 60 + row.checkpoint_gb / read / SECONDS_PER_HOUR,
        between_failures=1 / an_hour if an_hour else math.inf,
        every=asked.checkpoint_minutes and asked.checkpoint_minutes / 60,
    )
