"""Pull request 4099: an iteration with one large table in device memory, in host memory, or there with a cache on the device.

Everything but that table takes the same in all of them: what the published iteration has left with it in device memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.plan.steps import DENSE, FETCH, WRITE_BACK, Step, Steps
from recsys_lab.plan.store import HOST, HOST_CACHED
from recsys_lab.report.sections import Table
from recsys_lab.simulate import Profile
from recsys_lab.simulate.costs import device_step_ms
from recsys_lab.simulate.phases import exposed_phases
from recsys_lab.simulate.timeline import place
from recsys_lab.studies.pictures import BLUE, GREY, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

HERE = Path(__file__).parent
QUESTION = "a large table in device memory, in host memory, and there with a cache, ms an iteration"
DEVICE, UVM, CACHED_40, CACHED_20 = "device memory", "host memory", "40 % cached", "20 % cached"
SHARES = {CACHED_40: 0.4, CACHED_20: 0.2}
FP32_BYTES = 4
#: Bytes in device memory that finding a batch's rows in the cache moves. An id: a sort of 8-byte keys (eight passes of key and place, read
#: and written) and its place. A distinct row: its set of 32 tags of 8 bytes and as many counters.
BYTES_OF_ID, BYTES_OF_ROW = 8 * 2 * 16 + 16, 2 * 32 * 8
#: Of an iteration's dense arch, what comes before the backward pass.
FORWARD = 1 / 3
NOTES = (
    "The GPU is not named. H100: over PCIe 5 x16, of which the profile torchrec reaches 80 % (assumed for all GPUs, not fitted here).",
    "The time in device memory is the published one; what the others add is bytes over the link. Uniform ids hit a cache by its share.",
    "The cache is too small where it lacks the rows of two batches: the next batch's are fetched before this one's are updated.",
    "40 % cached: all of the fetch hides behind compute here. In the open it takes 331 ms; the published time is between the two.",
)


@dataclass(frozen=True)
class Large:
    """The table on each of `ranks` ranks, cut by rows: what a batch of all ranks reads of a rank's part."""

    ranks: int
    batch: int
    pooling: int
    rows: int
    dim: int

    @property
    def row_bytes(self) -> int:
        return FP32_BYTES * self.dim

    @property
    def look_ups(self) -> float:
        return self.batch * self.pooling

    def distinct(self, batches: int) -> float:
        """Different rows that so many batches read, in the mean."""
        own = self.rows / self.ranks
        return -own * math.expm1(batches * self.look_ups * math.log1p(-1 / own))


@dataclass(frozen=True)
class Priced:
    ms: float
    phases_ms: dict[str, float]


@cache
def published() -> dict[str, Any]:
    given: dict[str, Any] = yaml.safe_load((HERE / "published.yaml").read_text(encoding="utf-8"))["pull_4099"]
    return given


def large() -> Large:
    return Large(**{name: published()[name] for name in ("ranks", "batch", "pooling", "rows", "dim")})


def run(name: str, *, cluster: str) -> Study:
    """`cluster`: one of conf/cluster."""
    table, on, software = large(), built("cluster", cluster).reshaped(1, large().ranks), built("profile", "torchrec").pipelined
    found = {DEVICE: priced([], in_device_memory(table), on, software), UVM: priced([], in_host_memory(table), on, software)}
    found |= {what: priced(*cached(table, share), on, software) for what, share in SHARES.items()}
    found = {what: found[what] for what in published()["ms"]}
    open_40 = priced(*cached(table, SHARES[CACHED_40], hidden=False), on, software).ms
    given = published()["ms"]
    lines = [Line(what, one.ms, given[what], "ms", "simulated", by_construction=what == DEVICE) for what, one in found.items()]
    lines += [
        Line(f"{CACHED_40}, fetched in the open", open_40, None, "ms", "simulated"),
        Line("look-ups of a rank", table.look_ups, None, "rows", "counted"),
        Line("different rows of a batch on a rank", table.distinct(1), None, "rows", "counted"),
        Line("different rows of two batches on a rank", table.distinct(2), None, "rows", "counted"),
        Line("least that must be cached", 100 * least_share(table), None, "%", "counted"),
    ]
    ms = {what: one.ms for what, one in found.items()}
    statements = (
        ("a cache that holds the rows of two batches is faster than none", ms[CACHED_40] < ms[UVM]),
        ("one that does not is slower than none", ms[CACHED_20] > ms[UVM]),
        ("nothing is faster than device memory", ms[DEVICE] < min(ms[what] for what in ms if what != DEVICE)),
    )
    data = {"phases_ms": {what: one.phases_ms for what, one in found.items()}}
    return Study(
        name,
        QUESTION,
        tuple(lines),
        statements,
        NOTES,
        data,
        lambda folder: _draw(folder, name, table, on, software),
        _shown(name, lines, found),
    )


def least_share(table: Large) -> float:
    """Of the rows, those of two batches."""
    return table.distinct(2) / (table.rows / table.ranks)


def in_device_memory(table: Large) -> list[Step]:
    """A look-up that reads each row, an update that reads and writes those that are different."""
    read, changed = table.look_ups * table.row_bytes, 2 * table.distinct(1) * table.row_bytes
    return [Step("lookup", "lookup", "forward", (read,)), Step("update", "update", "backward", (changed,))]


def in_host_memory(table: Large) -> list[Step]:
    """The same over the link, by the kernels that compute."""
    lookup, update = in_device_memory(table)
    there = {"store": HOST, "tables": ("large",)}
    return [
        replace(lookup, name="fetch", kind=FETCH, rows_of_rank=(table.look_ups,), **there),
        replace(update, name="write_back", kind=WRITE_BACK, rows_of_rank=(2 * table.distinct(1),), **there),
    ]


def cached(table: Large, share: float, hidden: bool = True) -> tuple[list[Step], list[Step]]:
    """(what comes in and goes out, what reads and updates). `hidden`: beside the batch before, where the cache is large enough for that.

    Where the cache lacks the rows of two batches, the next batch's take the places of this one's before these are updated. So what was
    fetched is fetched in vain: the kernels read and write rows over the link as without a cache. Each batch finds its places full of rows
    that are in use, so that its own wait for them, and nothing is hidden.
    """
    holds = share >= least_share(table)
    missed = table.distinct(1) * (1 - share)
    there = {"store": HOST_CACHED, "tables": ("large",), "rows_of_rank": (missed,), "blocks": not (holds and hidden)}
    size = (missed * table.row_bytes,)
    moved = [
        Step("large.write_back", WRITE_BACK, "input", size, **there),
        Step("large.fetch", FETCH, "input", size, after=("large.write_back",), **there),
    ]
    found = table.look_ups * BYTES_OF_ID + table.distinct(1) * BYTES_OF_ROW + 2 * size[0]
    find = Step("find", "lookup", "forward", (found,))
    return moved, [find, *(in_device_memory(table) if holds else in_host_memory(table))]


def priced(moved: list[Step], own: list[Step], cluster: Cluster, software: Profile) -> Priced:
    """An iteration with steps of the large table: those that bring rows, and those that read and update them.

    The host's launches are in the rest, which was measured with them.
    """
    software = replace(software, launch_overhead_us=0.0, kernel_us=0.0)
    of_large = sum(float(device_step_ms(step, cluster, software, None).max()) for step in in_device_memory(large()))
    rest = published()["ms"][DEVICE] - of_large
    ahead, behind = ([step for step in own if step.phase == phase] for phase in ("forward", "backward"))
    dense = (_dense("forward", FORWARD * rest, cluster, software), _dense("backward", (1 - FORWARD) * rest, cluster, software))
    steps = Steps(cluster.world_size, large().batch, (*moved, *ahead, *dense, *behind))
    whole = place(steps, cluster, software)
    phases = {phase: ms for phase, ms in exposed_phases(whole.events(whole.slowest)).items() if ms}
    return Priced(sum(phases.values()), phases)


def _dense(phase: str, ms: float, cluster: Cluster, software: Profile) -> Step:
    step = Step(f"rest.{phase}", "dense", phase, (0.0,), flops=1e12, number_format="fp32", role=DENSE)
    return replace(step, flops=1e12 * ms / float(device_step_ms(step, cluster, software, None).max()))


def _shown(name: str, lines: list[Line], found: dict[str, Priced]) -> Table:
    rows = []
    for line in lines[: len(found)]:
        phases = found[line.what].phases_ms
        waits = phases.get("exposed_store", 0.0)
        error = "by construction" if line.by_construction else f"{line.error:+.1%}"
        rows.append((line.what, f"{line.published:,.0f}", f"{line.ours:,.1f}", error, f"{phases['compute']:,.1f}", f"{waits:,.1f}"))
    rows += [(line.what, "–", f"{line.ours:,.1f} {line.unit}", "–", "–", "–") for line in lines[len(found) :]]
    columns = ("", "published", "ours", "off by", "compute", "rows over the link")
    return Table(f"{name}: {QUESTION}", columns, tuple(rows), "", columns[1:])


def _draw(folder: Path, name: str, table: Large, cluster: Cluster, software: Profile) -> list[Path]:
    """An iteration by the share that is cached."""
    given = published()["ms"]
    shares = [at / 200 for at in range(1, 201)]
    with picture(folder / f"{name}.svg") as (_, (axis,)):
        axis.plot(
            [100 * s for s in shares],
            [priced(*cached(table, s), cluster, software).ms for s in shares],
            color=BLUE,
            label="a cache, simulated",
        )
        for what, colour in ((UVM, ORANGE), (DEVICE, GREY)):
            axis.axhline(given[what], color=colour, label=f"{what}, published")
        axis.plot([100 * s for s in SHARES.values()], [given[what] for what in SHARES], "o", color=BLUE, label="a cache, published")
        axis.axvline(100 * least_share(table), color=GREY, linestyle=":", label="rows of two batches")
        axis.set(xlabel="of the table's rows cached on the device, %", ylabel="ms an iteration", ylim=(0, None))
        axis.legend()
    return written(folder, name)
