"""The exchanges of the tiers are under way at the same time: all are issued before one is waited for, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from recsys_lab.tables import Table
from tests.executor.reference import Sample, samples
from tests.executor.sharded import build, dense_optimizer_of, placed, step
from tests.ranks import run_ranks

POOLED = (Table("one", 40, 16, ("f_one",)), Table("two", 24, 16, ("f_left", "f_right"), "mean"))
SEQUENCES = tuple(Table(t.name, t.rows, t.dim, t.features, "none") for t in POOLED)
DENSE = 3
ROWS, HOST, PEERS = (0, 1, 2, 3), (0, 1), (0, 2)  # of rank 0


class Logged(dist.Work):
    """A collective under way. What is waited for is written to `log`."""

    def __init__(self, work: dist.Work, log: list, entry: tuple):
        super().__init__()
        self.work, self.log, self.entry = work, log, entry

    def wait(self, *args: Any) -> bool:
        self.log.append(("waited", *self.entry))
        return self.work.wait(*args)


def logged_step(tables: tuple[Table, ...], batches: list[Sample]) -> list[tuple]:
    """What this rank does in the last step: (issued or waited, kind, group, number), and `stepping` where the optimizer begins."""
    sharded = build(tables, placed(tables, {"*": (4, 9)}), "adagrad", DENSE)
    dense = dense_optimizer_of(sharded)
    for batch in batches[:-1]:
        step(sharded, dense, batch)
    log: list[tuple] = []

    def watch(kind: str) -> None:
        real = getattr(dist, kind)

        def call(*args: Any, **options: Any) -> Any:
            work = real(*args, **options)
            entry = kind, tuple(dist.get_process_group_ranks(options["group"])), len(log)
            log.append(("issued", *entry))
            return Logged(work, log, entry)

        setattr(dist, kind, call)

    for kind in ("all_to_all_single", "reduce_scatter_tensor", "all_gather_into_tensor", "all_reduce"):
        watch(kind)
    sharded.sparse_optimizer.register_step_pre_hook(lambda *_: log.append(("stepping",)))
    step(sharded, dense, batches[-1])
    return log


@pytest.mark.parametrize("tables", [POOLED, SEQUENCES], ids=["pooled", "sequences"])
def test_every_exchange_is_issued_before_one_is_waited_for(tables: tuple[Table, ...]) -> None:
    log = run_ranks(logged_step, 2, 2, tables, samples(tables, 3, 12, DENSE))[0]
    there, back = ("all_to_all_single",) * 2 if tables is SEQUENCES else ("reduce_scatter_tensor", "all_gather_into_tensor")
    issued = [entry[1:] for entry in log if entry[0] == "issued"]
    kinds = [(kind, group) for kind, group, _ in issued]
    sizes = [("all_to_all_single", ROWS), ("all_to_all_single", HOST)]
    ids = [("all_to_all_single", ROWS)] * 2 + [("all_to_all_single", HOST)] * 2
    rows = [(there, ROWS), (there, HOST)]
    gradients = [(back, HOST), (back, ROWS)]
    averages = [("all_reduce", ROWS), ("all_reduce", PEERS)]
    assert kinds == [*sizes, *ids, *rows, *gradients, *averages]

    at = {entry: place for place, entry in enumerate(log)}

    def when(what: str, first: int, last: int) -> list[int]:
        return [at[(what, *entry)] for entry in issued[first:last]]

    assert max(when("issued", 0, 2)) < min(when("waited", 0, 2))  # sizes
    assert max(when("issued", 2, 6)) < min(when("waited", 2, 6))  # ids
    assert max(when("issued", 6, 8)) < min(when("waited", 6, 8))  # rows
    gradients_end = when("waited", 8, 10)
    everywhere, peers = when("issued", 10, 12)
    assert max(*when("issued", 8, 10), everywhere) < min(gradients_end)  # the replicated tier's average leaves before any is waited for
    assert gradients_end[0] < peers < gradients_end[1]  # the host-sharded tier's as soon as its gradient is there
    assert min(when("waited", 10, 12)) > at[("stepping",)]  # and the averages are waited for in the optimizer's step
