"""Rows that kernels read in the host's memory are there before what needs them, whatever runs beside compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.plan.lower import lower
from recsys_lab.plan.steps import FETCH, MOVES
from recsys_lab.plan.store import HOST, HOST_CACHED, Store
from recsys_lab.simulate.order import ordered
from recsys_lab.simulate.timeline import place
from tests.plan.plans import COMMS, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import profile
from tests.simulate.test_stores import SOFTWARE, on

OVERLAPS = [(), ("input",), ("bottom",), ("input", "dense_sync", "bottom"), ("collectives",), ("collectives", "input", "bottom")]


def lowered(*stores: Store | None, schemes: tuple[str, ...] = ("row_wise", "table_wise")) -> tuple:
    """Two families of schemes, their tables' stores in turn."""
    made = plan(schemes, 2, 2)
    placements = tuple(replace(p, store=stores[i % len(stores)]) for i, p in enumerate(made.placements))
    return made, lower(replace(made, placements=placements), access(TABLES, LENGTHS), COMMS, workload())


@pytest.mark.parametrize("overlaps", OVERLAPS)
@pytest.mark.parametrize("stores", [(Store(HOST),), (Store(HOST), None, Store(HOST_CACHED, 0.5))])
def test_every_step_comes_after_what_it_waits_for(stores: tuple[Store | None, ...], overlaps: tuple[str, ...]) -> None:
    """What an input distribution beside compute brings is of the next batch, and comes at the end."""
    _, steps = lowered(*stores)
    software, seen, late = profile(*overlaps, **SOFTWARE), [], []
    made = ordered(steps.steps, software, workload())
    for step in made:
        late += [(step.name, name) for name in step.after if name in {s.name for s in made} and name not in seen]
        seen.append(step.name)
    assert not late
    assert sum(step.kind in MOVES for step in made) >= 4


@pytest.mark.parametrize("overlaps", OVERLAPS)
def test_pooled_rows_leave_when_the_host_s_are_read(overlaps: tuple[str, ...]) -> None:
    """Also where exchanges run beside compute: they do not begin before the reading of the rows that they carry has ended."""
    _, steps = lowered(Store(HOST), schemes=("row_wise",))
    whole = place(steps, on(2, 2), profile(*overlaps, **SOFTWARE), workload())
    of_name = {placed.step.name: placed for placed in whole.placed}
    fetch, lookup, leave = (of_name[name] for name in (f"row_wise.host.{FETCH}", "row_wise.lookup", "row_wise.output.reduce_scatter"))
    assert (fetch.end > fetch.start).all()
    assert (lookup.start >= fetch.end).all() and (leave.start >= lookup.end).all()
    assert (of_name["row_wise.host.write_back"].start >= of_name["row_wise.update"].end).all()
