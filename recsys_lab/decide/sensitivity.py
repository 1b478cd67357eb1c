"""What would help the row that was chosen most: one change at a time, each simulated again.

Towers and another table optimizer are planned again: they are rows of their own. All other changes keep the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from recsys_lab.config.choices import built
from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.combinations import Combination
from recsys_lab.decide.prices import PHASES, Priced, priced_row
from recsys_lab.decide.rows import HARDWARE, Change, Row
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.experiment import Experiment
from recsys_lab.planning import planned_as
from recsys_lab.simulate import Profile
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
    LAUNCH_TIMES,
    MEMORY,
    NCCL,
    PARTS,
)

#: What the sentences are about, by name.
FP16_COMMS, FP32_COMMS, TOWERS = "FP16 communication", "FP32 communication", "DMT"
#: Whose host and whose kernels are those of CUDA graphs.
GRAPHS_OF = "hugectr"
#: Precisions that differ in what travels alone.
WIRES = ("fp32", "fp16_comms")
#: A change of time a sample below this is none.
LEAST = 0.005
#: A part of the cluster or the software, and what the change is called that makes it twice as fast.
CHANGES = {
    BETWEEN_HOSTS: "twice the NIC",
    IN_A_HOST: "twice the links in a host",
    MEMORY: "twice the memory bandwidth",
    ARITHMETIC: "twice the arithmetic",
    HOST_LINK: "twice the host link",
    HOST_MEMORY: "twice the host memory",
    DISK: "twice the disk",
    LATENCY_BETWEEN: "half the latency between hosts",
    LATENCY_IN: "half the latency in a host",
    NCCL: "half the latency of NCCL",
    HOST_LAUNCHES: "half the launch overhead",
    KERNELS: "half the overhead of kernels",
}
#: Those that are told where they change nothing, too.
ALWAYS = (BETWEEN_HOSTS, IN_A_HOST, MEMORY, HOST_LAUNCHES)
OF_SOFTWARE = (HOST_LAUNCHES, KERNELS, NCCL)


def changes_of(base: Row, priced: Sequence[Priced], data: DataSet) -> list[Change]:
    """Changes of the row `base` of `priced`, the most helpful first. Those that do not fit come last."""
    base_priced = next(candidate for candidate in priced if base.choices == candidate.rows[0].choices)
    changes = [_change(name, base, row, how) for name, row, how in _rows(base, base_priced, priced, data)]
    return sorted(changes, key=lambda change: (not change.fits, change.time_change or 0.0))


def _rows(base: Row, base_priced: Priced, priced: Sequence[Priced], data: DataSet) -> Iterator[tuple[str, Row | None, str | None]]:
    """What each change gives, None where it does not fit; and how it is made, None where nothing here does."""
    combination, plan = base_priced.combination, base_priced.plan
    assert plan is not None
    experiment, profile = combination.experiment, _profile(combination, base)
    cluster = experiment.cluster
    planned = planned_as(experiment, data, plan)
    for part, change in CHANGES.items():
        with_it = priced_row(combination, planned, *PARTS[part](profile, cluster))
        if (part in ALWAYS and (cluster.hosts > 1 or part != BETWEEN_HOSTS)) or _saves(with_it, base):
            yield change, with_it, None if part in OF_SOFTWARE else HARDWARE
    graphs = built("profile", GRAPHS_OF)
    if cluster.device.kind == "cuda" and graphs.launch_overhead_us < profile.launch_overhead_us:
        host = {name: min(getattr(profile, name), getattr(graphs, name)) for name in LAUNCH_TIMES}
        faster = replace(profile, **host, kernel_us=max(profile.kernel_us, graphs.kernel_us))
        yield "CUDA graphs", priced_row(combination, planned, faster), None
    if experiment.precision.compute == "fp32" and profile.peak_of_format.get("bf16") in cluster.device.peak_tflops:
        precision = replace(experiment.precision, compute="bf16", dense="bf16_master")
        how = "precision.compute=bf16 precision.dense=bf16_master"
        yield "BF16 compute", _with_its_plan(base_priced, base, data, replace(experiment, precision=precision)), how
    if experiment.batch_size == experiment.simulate.batch_size:
        simulate = replace(experiment.simulate, batch_size=2 * experiment.simulate.batch_size)
        yield "twice the batch", _with_its_plan(base_priced, base, data, replace(experiment, simulate=simulate)), f"batch={2 * base.batch}"
    if not experiment.sharder.dedup and any(table.pooling == "none" for table in plan.tables):
        once = replace(experiment, sharder=experiment.sharder.with_dedup(True))
        yield "equal ids once", _with_its_plan(base_priced, base, data, once), "sharder.dedup=true"
    wire = built("precision", "fp16_comms" if experiment.precision.forward_comm == "fp32" else "fp32")
    formats = {part: getattr(wire, part) for part in ("forward_comm", "backward_comm", "dense_comm")}
    yield (
        FP16_COMMS if wire.name == "fp16_comms" else FP32_COMMS,
        _with_its_plan(base_priced, base, data, replace(experiment, precision=replace(experiment.precision, **formats))),
        f"precision={wire.name}" if base.precision in WIRES else " ".join(f"precision.{part}={name}" for part, name in formats.items()),
    )
    for candidate in priced:
        first = candidate.rows[0]
        if first.cluster != base.cluster or (name := _difference(base, first, candidate)) is None:
            continue
        how = f"optimizers={first.optimizer}" if first.optimizer != base.optimizer else f"sharder={first.sharder}"
        row = next((row for row in candidate.rows if row.profile == base.profile and row.ms is not None), None)
        yield name, row, how if first.trainable else None


def _saves(row: Row, base: Row) -> bool:
    return row.ms is not None and base.ms is not None and row.ms < (1 - LEAST) * base.ms


def bound_of(changes: Sequence[Change]) -> tuple[str, Change] | None:
    """The part whose double speed helps most, and its change, of `changes` in their order; None where none helps."""
    parts = {name: part for part, name in CHANGES.items()}
    return next(((parts[one.name], one) for one in changes if one.name in parts and (one.time_change or 0.0) < -LEAST), None)


def _difference(base: Row, row: Row, candidate: Priced) -> str | None:
    """What distinguishes the row from `base`, if that is one of the changes."""
    differ = [key for key in ("sharder", "precision", "optimizer") if getattr(row, key) != getattr(base, key)]
    if differ == ["optimizer"]:
        return f"optimizer {row.optimizer}"
    if differ == ["sharder"] and candidate.combination.experiment.sharder.tower_modules:
        return TOWERS
    return None


def _with_its_plan(base_priced: Priced, base: Row, data: DataSet, experiment: Experiment) -> Row | None:
    """`experiment` with the plan of row `base`; None where it does not fit."""
    combination, plan = base_priced.combination, base_priced.plan
    assert plan is not None
    try:
        planned = planned_as(experiment, data, plan)
    except PlanDoesNotFit:
        return None
    batch = experiment.batch_size * experiment.cluster.world_size
    return priced_row(replace(combination, experiment=experiment, batch=batch), planned, _profile(combination, base))


def _profile(combination: Combination, base: Row) -> Profile:
    return next(profile for profile in combination.profiles if profile.name == base.profile)


def _change(name: str, base: Row, row: Row | None, how: str | None) -> Change:
    if row is None or row.ms is None or base.ms is None:
        return Change(name, fits=False, how=how)
    time = row.ms / row.batch / (base.ms / base.batch) - 1
    return Change(name, row.fits, row.ms, row.usd_per_1e9, time, row.cost / base.cost - 1, *_phase(base, row), how)


def _phase(base: Row, row: Row) -> tuple[str, tuple[float, float]]:
    """The phase that changes most, in words, and its ms before and after."""
    scale = base.batch / row.batch
    phases = dict.fromkeys([*base.phases_ms, *row.phases_ms])
    pairs = {phase: (base.phases_ms.get(phase, 0.0), scale * row.phases_ms.get(phase, 0.0)) for phase in phases}
    most = max(pairs, key=lambda phase: abs(pairs[phase][1] - pairs[phase][0]))
    return PHASES.get(most, most.replace("_", " ")), pairs[most]


def sentences(base: Row, changes: Sequence[Change]) -> list[str]:
    """What FP16 communication and towers would do to row `base`, and what would help it most."""
    by_name = {change.name: change for change in changes}
    return [*(_sentence(by_name[name]) for name in (FP16_COMMS, FP32_COMMS, TOWERS) if name in by_name), *advice(changes)]


def advice(changes: Sequence[Change]) -> list[str]:
    """Two sentences: what helps most that is available here, and which other hardware would."""
    helpful = [change for change in changes if change.fits and (change.time_change or 0.0) < -LEAST]
    by_words = [change for change in helpful if change.how not in (None, HARDWARE)]
    lines = ["None of the changes that are available here helps by more than 0.5 %."]
    if by_words:
        best = by_words[0]
        saved = f"{-(best.time_change or 0.0):.0%} less time a sample, {_why(best)}"
        lines = [f"The most effective change that is available here would be {best.name} ({best.how}): {saved}."]
    if (bought := next((change for change in helpful if change.how == HARDWARE), None)) is not None:
        lines.append(f"Of other hardware, {bought.name} would help most: {-(bought.time_change or 0.0):.0%} less time a sample.")
    elif (software := next((change for change in helpful if change.how is None), None)) is not None:
        saved = f"{-(software.time_change or 0.0):.0%} less time a sample, but nothing here makes it"
        lines.append(f"No other hardware would help. {software.name[0].upper()}{software.name[1:]} would: {saved}.")
    return lines


def _why(change: Change) -> str:
    before, after = change.phase_ms
    return f"because {change.phase} time {'falls' if after < before else 'rises'} from {before:.2f} to {after:.2f} ms"


def _sentence(change: Change) -> str:
    if not change.fits or change.time_change is None:
        return f"{change.name} {'is not for this model, or ' if change.name == TOWERS else ''}does not fit."
    if abs(change.time_change) < LEAST:
        return f"{change.name} changes less than {LEAST:.1%}."
    verb = "saves" if change.time_change < 0 else "costs"
    return f"{change.name} {verb} {abs(change.time_change):.0%}, {_why(change)}."
