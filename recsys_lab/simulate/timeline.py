"""Steps placed in time, for every rank: a compute stream, and streams of communication.

A stream does one thing at a time. A rank's link (within its host, or across hosts) carries the embeddings of one collective at a time.
While a collective has only its latency to bear, others may use the link. They may also use what it leaves of the link's line rate
(`Link.line_gb_s`). What is waited for last, ids of the next batch and dense gradients where they overlap, goes behind every embedding
(`background.py`). A collective begins when the last of its group is ready. So ranks with more to do hold the others up. What the profile
names runs beside compute; all else waits its turn. A GPU's host issues the steps one after another and runs ahead of the device
(`host.py`). A CPU issues and computes on the same cores. Where it names `collectives`, process groups have threads of their own. A
collective is in flight from when it is issued, and a rank waits only for what its next step needs. Latencies pass side by side on GPUs. On
a CPU the cores send and receive every message, so a rank's collectives have their latencies one after another. Rows that a cache takes in
or gives up use the host's link and its disk beside compute, as input does (`stores.py`).

Every time here grows with every cost, so that nothing faster makes an iteration slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan.steps import DENSE_SYNC, HOST_TIER, MODULE_SYNC, WAIT, Step, Steps
from recsys_lab.plan.workload import Workload
from recsys_lab.simulate.background import First, at_rest_ms, fitted_in_ms
from recsys_lab.simulate.collectives import Cost
from recsys_lab.simulate.costs import collective_step_cost, copy_ms, device_step_ms, launches, of_profile
from recsys_lab.simulate.host import host_of, stops_host
from recsys_lab.simulate.order import is_dense_work, ordered
from recsys_lab.simulate.placed import BACKGROUND, COPY, LINKS, MESSAGES, STREAMS, Event, Issued, Placed, Schedule
from recsys_lab.simulate.profile import PINNED, Profile
from recsys_lab.simulate.rooted import exchanges
from recsys_lab.simulate.stores import behind_kernels, in_the_open, is_brought, next_rows, of_next_batch
from recsys_lab.units import MIB, US_PER_MS

SYNCS = (DENSE_SYNC, MODULE_SYNC)
__all__ = ["BACKGROUND", "STREAMS", "Event", "Placed", "Schedule", "place", "schedule"]


def schedule(steps: Steps, cluster: Cluster, profile: Profile, workload: Workload | None = None) -> list[Event]:
    """The iteration as its slowest rank has it."""
    whole = place(steps, cluster, profile, workload)
    return whole.events(whole.slowest)


def place(steps: Steps, cluster: Cluster, profile: Profile, workload: Workload | None = None) -> Schedule:
    """All steps, in the order of `steps` but for what the profile lets overlap.

    A step that overlaps begins when it is ready and its link is free. It holds up only what comes after it. Where all ranks are alike, one
    of them is placed for all. A CPU's input is there and not copied.
    """
    ranks = 1 if _all_alike(steps) else steps.world_size
    cluster, streams = of_profile(cluster, profile), {name: np.zeros(ranks) for name in (*STREAMS, *LINKS, MESSAGES)}
    overhead_ms = np.full(ranks, profile.iteration_overhead_ms)
    if "host" not in profile.overlaps or cluster.device.kind == "cpu":
        streams["compute"] += overhead_ms
    placed: dict[str, Placed] = {}
    todo = [step for step in ordered(steps.steps, profile, workload) if _is_done(step, cluster, profile)]
    beside = {step.name: step for step in todo if step.is_collective and step.phase == "input" and _overlaps(step, profile)}
    rows = [step for step in todo if of_next_batch(step, profile)]
    inline = [step for step in todo if step.name not in beside and step not in rows]
    host = host_of(inline, cluster, profile, overhead_ms)
    sync_ms = sum(max(collective_step_cost([step], cluster, profile)).ms for step in inline if step.role == DENSE_SYNC)
    issued = [Issued("fixed overhead of an iteration", np.zeros(ranks), overhead_ms, 0)]
    for pieces in exchanges(inline):
        step, number = pieces[0], sum(launches(one, profile, workload) for one in pieces)
        begun, host, overhead = host.now, host.issue(number), host.on_device_ms(number)
        issued.append(Issued(f"launch {step.name}", begun, host.now, number))
        ready = np.max([host.issued, *(placed[name].end for name in step.after if name in placed)], axis=0)
        if step.is_collective:
            placed |= _collective(pieces, ready, overhead, placed, streams, cluster, profile, sync_ms)
        elif is_brought(step):
            placed[step.name] = in_the_open(step, ready, overhead, streams, cluster, profile)
        elif step.kind == "host_to_device":
            placed[step.name] = _copy(step, host.issued, overhead, streams, cluster, profile)
        else:
            start = np.maximum(ready, streams["compute"]) + overhead
            end = start + device_step_ms(step, cluster, profile, workload) + number * profile.kernel_us / US_PER_MS
            placed[step.name] = Placed(step, "compute", start, end, np.full(ranks, True), np.zeros(ranks))
            streams["compute"] = end
        for piece in pieces:
            placed[piece.name] = replace(placed[piece.name], issued=host.issued_at(placed[piece.name].start))
        if stops_host(step):
            host = host.wait(placed[step.name].end)
    begun, host = host.now, host.issue(len(beside) + len(rows))
    issued.append(Issued("launch what the next batch needs", begun, host.now, len(beside) + len(rows)))
    there = _place_next_ids(list(beside.values()), placed, ranks, host.on_device_ms(1), cluster, profile)
    placed |= next_rows(rows, there, placed, streams, host.on_device_ms(1), cluster, profile)
    placed |= behind_kernels(placed.values(), cluster, profile)
    return Schedule(tuple(placed.values()), host.done_ms, () if host.serial else tuple(issued))


def _is_done(step: Step, cluster: Cluster, profile: Profile) -> bool:
    """A CPU's input is there. Ids that each rank reads are not exchanged."""
    if step.kind == "host_to_device":
        return cluster.device.kind != "cpu"
    return profile.exchanges_ids or step.phase != "input" or not step.is_collective


def _copy(step: Step, issued: np.ndarray, overhead: float, streams: dict[str, np.ndarray], cluster: Cluster, profile: Profile) -> Placed:
    """Input from the host: of a later batch, beside everything, or of this one, before everything."""
    beside = profile.input == PINNED and not {"copy", "input"}.isdisjoint(profile.overlaps)
    start = (np.zeros_like(streams["compute"]) if beside else np.maximum(streams["compute"], issued)) + overhead
    end = start + copy_ms(step, cluster, profile)
    streams[COPY] = end
    if not beside:
        streams["compute"] = end
    return Placed(step, COPY, start, end, np.full(len(end), True), np.zeros(len(end)))


def _collective(
    pieces: Sequence[Step],
    ready: np.ndarray,
    overhead: float,
    placed: dict[str, Placed],
    streams: dict[str, np.ndarray],
    cluster: Cluster,
    profile: Profile,
    sync_ms: float,
) -> dict[str, Placed]:
    """One, or all pieces of an exchange, by name. `sync_ms`: of all collectives that average dense gradients."""
    step, costs, ranks = pieces[0], collective_step_cost(pieces, cluster, profile), len(ready)
    beside, link = _overlaps(step, profile), _link_of(step, cluster)
    side_by_side = "collectives" in profile.overlaps
    together, by_cores = side_by_side and not step.blocks, side_by_side and cluster.device.kind == "cpu"
    stream = _stream_of(step, link)
    follows = any(placed[name].step.role == DENSE_SYNC for name in step.after if name in placed)
    if beside and step.role == DENSE_SYNC and not follows:
        ready = _first_bucket_ms(step, sync_ms, placed, profile)
    elif not beside:
        ready = np.maximum(ready, streams["compute"])
    ready = (ready if together else np.maximum(ready, streams[stream])) + overhead
    start, end, here, wire_ms, rests = ready.copy(), ready.copy(), np.full(ranks, False), np.zeros(ranks), streams[link].copy()
    spans = np.zeros((2, len(pieces), ranks))
    background = beside and stream in BACKGROUND
    for at, cost in _groups(step, ranks, costs):
        since = ready[at]
        if by_cores:
            since = np.maximum(since, streams[MESSAGES][at])
            streams[MESSAGES][at] = since + cost.messages_ms
        begin = since.max()
        if background:
            done = max(begin + cost.ms, at_rest_ms(begin, cost.ms - cost.spare_ms, _first(at, link, placed.values())))
        else:
            rests[at] = max(begin, streams[link][at].max()) + cost.wire_ms
            done = max(begin + cost.ms, rests[at[0]])
        start[at], end[at], here[at], wire_ms[at] = begin, done, True, cost.wire_ms
        spans[:, :, at] = np.asarray(cost.spans).T[:, :, None]
    streams[stream], streams[link] = np.where(here, end, streams[stream]), rests
    if not beside:
        streams["compute"] = np.where(here, ready if together else end, streams["compute"])
    whole = Placed(step, stream, start, end, here, wire_ms, link)
    return {step.name: whole} if len(pieces) == 1 else _in_pieces(whole, pieces, spans)


def _in_pieces(whole: Placed, pieces: Sequence[Step], spans: np.ndarray) -> dict[str, Placed]:
    """An exchange, piece by piece. The link carries all of it before the end of the last. `spans` [2, P, R]: of the whole."""
    last, took, places = spans[1].argmax(axis=0), whole.end - whole.start, {}
    for number, piece in enumerate(pieces):
        begin, end = (np.where(share == 1.0, whole.end, whole.start + share * took) for share in spans[:, number])
        wire_ms = np.where(last == number, whole.wire_ms, 0.0)
        places[piece.name] = replace(whole, step=piece, start=begin, end=end, wire_ms=wire_ms)
    return places


def _place_next_ids(
    steps: Sequence[Step], placed: dict[str, Placed], ranks: int, overhead: float, cluster: Cluster, profile: Profile
) -> dict[str, np.ndarray]:
    """The next batch's ids, one exchange after another, where embeddings leave links free.

    All else is placed. Returns by name of each when it would be done on links of its own. Rows of its ids may be fetched from then on.
    """
    there: dict[str, np.ndarray] = {}
    begin, queued_ms, of_link_ms, last, rest = (np.zeros(ranks) for _ in range(5))
    for number, step in enumerate(steps):
        ends = [placed[name].end for name in step.after if name in placed and placed[name].stream != "input"]
        begin = np.max([begin, *ends], axis=0)
        link = _link_of(step, cluster)
        start, end, wire_ms, free = (np.zeros(ranks) for _ in range(4))
        for at, cost in _groups(step, ranks, collective_step_cost([step], cluster, profile)):
            since, first = begin[at].max(), _first(at, link, placed.values())
            queued_ms[at] = queued_ms[at].max() + overhead + cost.ms
            free[at] = since + queued_ms[at[0]]
            of_link_ms[at] = of_link_ms[at].max() + overhead + cost.ms - cost.spare_ms
            rest[at] = max(rest[at].max(), since + queued_ms[at[0]], at_rest_ms(since, of_link_ms[at[0]], first))
            begun = max(last[at].max(), since) + overhead
            done = min(max(begun + cost.ms, fitted_in_ms(since, of_link_ms[at[0]], first)), rest[at[0]])
            end[at] = rest[at[0]] if number == len(steps) - 1 else done
            start[at], wire_ms[at] = min(begun, done), cost.wire_ms
        last = end
        there[step.name] = free
        placed[step.name] = Placed(step, "input", start, end, np.full(ranks, True), wire_ms, link)
    return there


def _groups(step: Step, ranks: int, costs: list[Cost]) -> list[tuple[list[int], Cost]]:
    """The ranks of each group, with what it costs them. One rank for all where all are alike."""
    return [([0], max(costs))] if ranks == 1 else [(list(group), cost) for group, cost in zip(step.groups, costs)]


def _link_of(step: Step, cluster: Cluster) -> str:
    """The level of links that a collective is on."""
    far = cluster.hosts == 1 or any(cluster.host_of(group[0]) != cluster.host_of(group[-1]) for group in step.groups)
    return "far" if far else "near"


def _first(ranks: list[int], link: str, others: Iterable[Placed]) -> list[First]:
    """Exchanges of embeddings on the links of `ranks`."""
    own = [o for o in others if o.link == link and o.stream not in BACKGROUND and o.here[ranks].any()]
    return [First(np.where(o.here, o.end - o.wire_ms, 0.0)[ranks], np.where(o.here, o.end, 0.0)[ranks]) for o in own]


def _stream_of(step: Step, link: str) -> str:
    if step.role in SYNCS:
        return "dense_sync"
    return "input" if step.phase == "input" else "across" if link == "far" else "within"


def _all_alike(steps: Steps) -> bool:
    """Whether every rank does the same: equal bytes, and a group in every collective."""
    return all(
        max(map(len, (s.bytes_of_rank, s.received_of_rank, s.rows_of_rank, s.shards_of_rank, s.written_of_rank, s.repeated_of_rank))) <= 1
        and max(len(s.asked_of_rank), len(s.missed_of_rank)) <= 1
        and sum(map(len, s.groups)) in (0, steps.world_size)
        for s in steps.steps
    )


def _first_bucket_ms(step: Step, ms: float, placed: dict[str, Placed], profile: Profile) -> np.ndarray:
    """When the average of gradients begins, which takes `ms` in equal buckets.

    It begins not before the backward has filled the first, and so that the last follows its end.
    """
    whole = [p for p in placed.values() if (is_dense_work(p.step) or p.step.kind == WAIT) and p.step.phase == "backward"]
    start, end = whole[0].start, whole[-1].end
    buckets = max(math.ceil(step.max_bytes / (profile.dense_bucket_mib * MIB)), 1)
    return np.maximum(start + (end - start) / buckets, end + ms / buckets - ms)


def _overlaps(step: Step, profile: Profile) -> bool:
    """Whether a collective runs beside compute."""
    if step.blocks:
        return False
    if step.phase == "input":
        return "input" in profile.overlaps
    if step.role == HOST_TIER and "host_tier" in profile.overlaps:
        return True
    if step.role in SYNCS:
        return step.role == DENSE_SYNC and "dense_sync" in profile.overlaps
    return "bottom" in profile.overlaps
