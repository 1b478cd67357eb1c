"""What to do about a run, in two sentences: what bounds its iteration, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_lab.plan import ShardingPlan
from recsys_lab.record.run_folder import Run
from recsys_lab.report.baselines import verdict
from recsys_lab.report.sections import CALIBRATE, share
from recsys_lab.simulate.bounds import (
    ARITHMETIC,
    BETWEEN_HOSTS,
    DISK,
    HOST_LAUNCHES,
    HOST_LINK,
    HOST_MEMORY,
    IN_A_HOST,
    KERNELS,
    LATENCY_BETWEEN,
    LATENCY_IN,
    MEMORY,
    NCCL,
)
from recsys_lab.units import human_bytes

#: What helps against each bound.
REMEDIES = {
    HOST_LAUNCHES: "a larger batch, or fewer devices, have less of it for each sample",
    KERNELS: "a larger batch, or fewer pieces of tables, have fewer kernels for each sample",
    ARITHMETIC: "a lower precision does more of it in the same time (precision=bf16)",
    MEMORY: "FP16 tables or smaller rows need less of it",
    BETWEEN_HOSTS: "FP16 exchanges (precision=fp16_comms), or tables that stay within hosts, send less over them",
    IN_A_HOST: "FP16 exchanges (precision=fp16_comms) send less over them",
    LATENCY_BETWEEN: "a larger batch or fewer hosts wait less for it",
    LATENCY_IN: "a larger batch or fewer devices wait less for it",
    NCCL: "a larger batch or fewer collectives wait less for it",
    HOST_LINK: "larger caches, or more devices, move less over it",
    HOST_MEMORY: "larger caches, or more hosts, read less of it",
    DISK: "larger caches read less from it",
}
#: Of an iteration: a part below this saves little, and a wait for data above it is worth a sentence.
LITTLE, LONG_WAIT = 0.01, 0.1


def advice(run: Run) -> list[str]:
    """Of the simulation, or, where there is none, of the training."""
    simulated = run.result["simulated"]
    if simulated and not run.hides_simulation:
        return simulated_advice(simulated, run.plan, run.result["choices"])
    return _measured_advice(run)


def simulated_advice(simulated: Mapping[str, Any], plan: ShardingPlan | None, choices: Mapping[str, str | None]) -> list[str]:
    """What bounds the iteration, and what helps against it. Before that, where the model is far too small for the cluster, that it is."""
    saved, whole_ms = simulated.get("bound_by"), simulated["iteration_ms"]
    if not saved:
        return []
    (part, most_ms), *others = saved.items()
    bound = f"The iteration is bound by {part}: at twice the speed it takes {share(most_ms, whole_ms)} less time"
    small = small_words(simulated, plan, choices) if plan is not None else None
    if others and others[0][1] > LITTLE * whole_ms:
        bound += f"; next comes {others[0][0]}, {share(others[0][1], whole_ms)}"
    return [*([small] if small else []), f"{bound}.", f"{REMEDIES[part][0].upper()}{REMEDIES[part][1:]}."]


def small_words(simulated: Mapping[str, Any], plan: ShardingPlan, choices: Mapping[str, str | None]) -> str | None:
    """How its sharder compares, of a model that is far too small for its cluster. None of others.

    `94% host launches and overhead: 14 MB of tables on 64 devices; torchrec is 1.3 times as fast here; with tower modules dmt is another
    model than dcn. torchrec on one host of 8, at the same batch in all, has 95% of these examples/s at 13% of the cost; simulated.`
    """
    whole_ms, sharder = simulated["iteration_ms"], choices.get("sharder")
    here_ms, host_ms = simulated.get("torchrec_ms"), simulated.get("torchrec_host_ms")
    if not here_ms and not host_ms:
        return None
    tables = human_bytes(sum(table.weight_bytes for table in plan.tables))
    host = share(2 * simulated["bound_by"].get(HOST_LAUNCHES, 0.0), whole_ms)
    parts = [f"{host} {HOST_LAUNCHES}: {tables} of tables on {plan.world_size} devices"]
    if here_ms:
        times = whole_ms / here_ms
        parts.append(f"torchrec is {times:.1f} times as fast here" if times > 1.05 else "torchrec is no faster here")
    if len(plan.towers) > 1:
        parts.append(f"with tower modules {sharder} is another model than {choices.get('model')}")
    words = "; ".join(parts) + "."
    if not host_ms:
        return words
    times = whole_ms / host_ms
    of_host = f"torchrec on one host of {plan.ranks_per_host}, at the same batch in all, has {share(times, 1)} of these examples/s"
    return f"{words} {of_host} at {share(1 / times, plan.hosts)} of the cost; simulated."


def _measured_advice(run: Run) -> list[str]:
    """That data were waited for, what the quality says, and how this machine is simulated."""
    wait = (run.result["measured"] or {}).get("data_wait_share") or 0.0
    lines = [f"An iteration waits for data in {wait:.0%} of its time."] if wait > LONG_WAIT else []
    lines += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in verdict(run.result)]
    if run.hides_simulation:
        lines.append(f"This machine is not calibrated, so no time of it was simulated: {CALIBRATE}.")
    return lines[:2]
