"""What a run's report says, as tables of text: the page and the terminal show the same ones. Every figure names its origin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recsys_lab.cluster import ranks_text
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.explain import table_facts
from recsys_lab.record.metrics import QUALITY, RETRIEVAL
from recsys_lab.record.result import WARM_UP
from recsys_lab.record.run_folder import Run, value_at
from recsys_lab.record.started_from import StartedFrom
from recsys_lab.report.baselines import baseline_rows, overrides_text, verdict
from recsys_lab.report.memory import MEMORY, MEMORY_PARTS, fullest_words
from recsys_lab.units import MS_PER_S, counted, grid, human_bytes, human_count

UNKNOWN = "not known"
CALIBRATE = "python -m recsys_lab calibrate measures this machine"
PIPELINE = "sharder.executor.pipeline"
#: Letters of a group of ranks in a table.
LONGEST_GROUP = 24


def unlike_pipelines(sharders: Iterable[tuple[str, bool]]) -> list[str]:
    """One sentence where some of `sharders` send the next batch's ids ahead, which is `PIPELINE`, and others do not; else none."""
    ahead, waiting = (list(dict.fromkeys(name for name, pipeline in sharders if pipeline is wanted)) for wanted in (True, False))
    if not ahead or not waiting:
        return []
    names = f"{', '.join(ahead)} {'send' if len(ahead) > 1 else 'sends'} the next batch's ids ahead, {', '.join(waiting)}"
    return [f"unlike pipelines: {names} {'do' if len(waiting) > 1 else 'does'} not; {PIPELINE}=true makes them alike"]


@dataclass(frozen=True)
class Table:
    """A titled table of text.

    `right`: names of the columns that hold figures. `bold`: row and column of the cells that stand out. Without rows, `note` says why.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    right: tuple[str, ...] = ()
    bold: frozenset[tuple[int, str]] = frozenset()


#: What it is, its value, where that is from.
Figure = tuple[str, str, str]


def headline(run: Run) -> Table:
    """The few figures that matter, each with where it came from."""
    rows = tuple(row for group in headline_groups(run) for row in group)
    note = outside_words(run.result) if rows else absent(run.result, "measured")
    return Table("Headline", ("figure", "value", "origin"), rows, note, ("value",))


def headline_groups(run: Run) -> tuple[list[Figure], list[Figure], list[Figure]]:
    """The same by what they are: measured time; what is simulated, and memory; quality."""
    return _measured_rows(run), _simulated_rows(run), _quality_rows(run)


def _measured_rows(run: Run) -> list[Figure]:
    measured = run.result["measured"]
    if not measured:
        return []
    where = f"measured, {counted(measured['world_size'], 'process')} here{_batch_here(run)}"
    rows = [("iteration, median", ms((measured["iteration_ms"] or {}).get("median")), where)]
    rows.append(("examples per second, mean", count(measured["examples_per_second"]), where))
    phases = {name: value for name, value in (measured["phases_ms"] or {}).items() if value}
    if phases:
        most = max(phases, key=lambda name: phases[name])
        rows.append(("most of an iteration", most.replace("_", " "), f"measured: {share(phases[most], sum(phases.values()))} of its time"))
    if written := measured.get("checkpoints"):
        rows.append((f"pause a checkpoint ({written['count']} written)", f"{written['mean_s']:.2f} s", _of_checkpoints(written)))
    return rows


def _of_checkpoints(written: dict[str, Any]) -> str:
    """Where the pause is from, and what else checkpoints cost. Records of earlier versions have the pause alone."""
    words = ["measured, mean"]
    if (paused := written.get("stall_share")) is not None:
        words.append(f"{paused:.1%} of training")
    if written.get("bytes") is not None:
        words.append(f"each {human_bytes(written['bytes'])}, on disk after {written['write_s']:.2f} s")
    if written.get("in_background"):
        words.append(f"{written['in_background']} written beside training, from copies of {human_bytes(written['copy_bytes'])} a rank")
    if (part := written.get("incremental_bytes_share")) is not None:
        words.append(f"{written['incremental']} incremental, {part:.0%} of a full one")
    return "; ".join(words)


def _quality_rows(run: Run) -> list[Figure]:
    rows = []
    for split in ("validation", "test"):
        if figures := (run.result["quality"] or {}).get(split):
            if (ndcg := figures.get("ndcg_10")) is not None:
                rows.append((f"NDCG@10 among all items, {split}", number(ndcg, 4), "measured"))
            if "auc" not in figures:
                continue
            rows.append((f"AUC, {split}", number(figures["auc"], 4), "measured"))
            if (best := run.best_auc.get(split)) is not None:
                rows.append((f"best reachable AUC, {split}", number(best, 4), "planted truth"))
            if split == "validation":
                rows.append((f"NE, {split}", number(figures["ne"], 4), "measured"))
    return rows


def _simulated_rows(run: Run) -> list[Figure]:
    """Time, dollars, memory, what bounds the iteration, and throughput. Memory is counted, of any plan."""
    rows, simulated = [], run.result["simulated"]
    memory = [(MEMORY, fullest_words(run), f"counted: {MEMORY_PARTS}")] if fullest_words(run) else []
    if run.hides_simulation:
        return [("iteration", "not calibrated", f"simulated; {CALIBRATE}"), *memory]
    if not simulated:
        return memory
    where = f"simulated, {simulated['cluster']}{_batch_there(simulated)}"
    rows.append(("iteration", ms(simulated["iteration_ms"]), f"{where}, profile {simulated['profile']}"))
    if interval := simulated.get("interval_ms"):
        span = f"{ms(interval['low']).removesuffix(' ms')}\N{EN DASH}{ms(interval['high'])}"
        rows.append(("90 % interval", span, "simulated, of the iteration"))
    if (usd := simulated.get("cost_per_billion_samples")) is not None:
        price = simulated.get("price")
        at = f", at {price['usd_per_device_hour']:,.2f} $ a device-hour ({price['origin']})" if price else ""
        rows.append(("dollars per 1e9 samples", f"{usd:,.2f} $", f"simulated{at}"))
    rows += memory
    if saved := simulated.get("bound_by"):
        part, saved_ms = next(iter(saved.items()))
        rows.append(("bound by", part, f"simulated: {share(saved_ms, simulated['iteration_ms'])} less time at twice the speed"))
    rows.append(("examples per second", count(simulated["examples_per_second"]), where))
    if early := simulated.get("in_run"):
        rows.append((f"iteration, mean of this run's {counted(early['steps'], 'step')}", ms(early["iteration_ms"]), where))
    return rows


def has_quality(run: Run) -> bool:
    """Whether it trained or evaluated, or failed before."""
    return run.result["quality"] is not None or run.result["mode"] not in ("plan", "simulate")


def _batch_here(run: Run) -> str:
    batch = value_at(run.config, "data.batch_size")
    return f", batch {batch:,} over all of them" if isinstance(batch, int) else ""


def _batch_there(simulated: dict[str, Any]) -> str:
    """As the iteration's time and throughput have it."""
    samples = (simulated["examples_per_second"] or 0) * (simulated["iteration_ms"] or 0) / MS_PER_S
    return f", batch {round(samples / simulated['world_size']):,} a rank" if samples else ""


def outside_words(result: dict[str, Any]) -> str:
    """What a simulated interval rests on, where that is another system than the one simulated, and what is doubted of the cluster."""
    simulated = result["simulated"] or {}
    outside, doubt = simulated.get("extrapolates"), simulated.get("doubt")
    words = [f"The interval is wide, since the profile was {outside}."] if outside else []
    return " ".join([*words, *([f"{doubt}."] if doubt else [])])


def quality(run: Run) -> Table:
    """Quality by split, beside the baselines and the best reachable AUC where they are known."""
    splits = run.result["quality"] or {}
    if splits:
        splits = splits | baseline_rows(run.result)
    best = run.best_auc
    metrics = [name for name in (*QUALITY, *RETRIEVAL) if any(name in q for q in splits.values())]
    columns = ("split", *(metrics or QUALITY), *(("best auc",) if best else ()))
    rows = [
        (
            split,
            *(_metric(name, q.get(name)) for name in metrics),
            *((number(best[split], 5) if split in best else "",) if best else ()),
        )
        for split, q in splits.items()
    ]
    notes = ["best auc: of the true click probabilities; on rows that it has not seen no model is better but by chance"] if best else []
    if "users" in metrics:
        notes.append("ranks of each user's held-out item among all items that it had not had, and among 100; of equal scores the mean")
    notes += verdict(run.result)
    if chosen := run.result.get("chosen"):
        notes.append(f"chosen by the number of rows: {overrides_text(chosen)}")
    if started := run.result.get("started_from"):
        notes.append(f"weights: {StartedFrom(**started).sentence()}")
    note = "; ".join(notes) if rows else absent(run.result, "quality")
    return Table("Quality (measured)", columns, tuple(rows), note, columns[1:])


def _metric(name: str, value: float | None) -> str:
    return f"{value:,}" if value is not None and name in ("examples", "users") else number(value, 5)


def plan_facts(run: Run, plan: ShardingPlan, title: str, of_record: bool) -> Table:
    """A plan in figures. `of_record`: it is the plan that the record's summary describes."""
    held = plan.weight_bytes_of_ranks()
    schemes = Counter(placement.scheme for placement in plan.placements)
    rows = [
        ("sharder", plan.sharder),
        ("ranks", f"{plan.world_size} = {grid(plan.hosts, plan.ranks_per_host)}"),
        ("tables", f"{len(plan.tables)} with {counted(sum(t.rows for t in plan.tables), 'row')}"),
        ("parameters of the tables", human_count(sum(t.parameters for t in plan.tables))),
        ("schemes", ", ".join(f"{scheme} {n}" for scheme, n in schemes.most_common())),
        ("table weights per rank", f"at most {human_bytes(max(held))}, mean {human_bytes(sum(held) / len(held))}"),
    ]
    summary = run.result["plan"]
    if of_record and summary:
        if words := fullest_words(run):
            rows.append((MEMORY, f"{words}: {MEMORY_PARTS}"))
        total = summary["bytes_per_rank"]
        limit = "" if run.memory_limit_bytes is None else f"; at most {human_bytes(run.memory_limit_bytes)} may"
        rows.append(("of it, from step to step", f"at most {size(total['max'])}, mean {size(total['mean'])}, without buffers{limit}"))
    if plan.towers:
        rows.append(("towers", "; ".join(", ".join(tower) for tower in plan.towers)))
    rows.append(("fingerprint", plan.fingerprint))
    return Table(title, ("fact", "value"), tuple(rows))


def alternatives(run: Run) -> Table | None:
    """The plan beside the next-best ones, as its planner prices them. None where it does not tell."""
    if run.reasons is None:
        return None
    columns = tuple(run.reasons["columns"])
    rows = tuple(tuple(row) for row in run.reasons["rows"])
    title = "This plan and others (simulated, by the planner's cost model)"
    return Table(title, columns, rows, run.reasons.get("note", ""), right=columns[1:])


def tables(plan: ShardingPlan, title: str) -> Table:
    """One row a table: what it is and where it lives."""
    columns = ("table", "rows", "dim", "type", "bytes", "scheme", "shards", "ranks")
    rows = [
        (t.name, f"{t.rows:,}", str(t.dim), t.dtype, human_bytes(t.weight_bytes), p.scheme, str(len(p.shards)), ranks_text(p.ranks))
        for t, p in zip(plan.tables, plan.placements)
    ]
    return Table(title, columns, tuple(rows), right=("rows", "dim", "bytes", "shards"))


def reasons(plan: ShardingPlan) -> Table:
    """One row a table: where it lies, in words, and what that gains or costs."""
    rows = [(f.table.name, f.where, f.why) for f in table_facts(plan)]
    return Table("Why there", ("table", "where", "why"), tuple(rows))


def phases(run: Run, origin: str) -> Table:
    """Where an iteration's time goes. `origin`: measured | simulated; the two are never one table."""
    part = run.result[origin]
    title = f"Iteration ({origin})"
    if not part:
        return Table(title, ("phase", "ms", "share"), (), absent(run.result, origin))
    if origin == "simulated" and run.hides_simulation:
        return Table(title, ("phase", "ms", "share"), (), f"not calibrated: {CALIBRATE}")
    named = {name: value for name, value in (part["phases_ms"] or {}).items() if value is not None}
    whole = sum(named.values()) if origin == "measured" else part["iteration_ms"]
    rows = [(name.replace("_", " "), ms(value), share(value, whole)) for name, value in named.items()]
    notes = []
    if origin == "measured":
        rows.append(("iteration, mean: all phases", ms(whole if named else None), ""))
        rows.append(("iteration, median", ms(part["iteration_ms"]["median"]), ""))
        rows.append(("iteration, 95th percentile", ms(part["iteration_ms"]["p95"]), ""))
        transport = (part.get("transport") or part["backend"]).replace("_", " ")
        notes.append(f"{transport}, {grid(part['hosts'], part['ranks_per_host'], 'process')}{_batch_here(run)}")
        notes.append(f"waiting for data {'not known' if part['data_wait_share'] is None else format(part['data_wait_share'], '.1%')}")
        if part["wire_bytes"]:
            wire = part["wire_bytes"]
            notes.append(f"sent per rank: {size(wire['intra_host'])} in the host, {size(wire['cross_host'])} between hosts")
        if part["peak_memory_bytes"] is not None:
            notes.append(f"peak memory {human_bytes(part['peak_memory_bytes'])}{_added(part)}")
    else:
        rows.append(("iteration", ms(whole), ""))
        ranks = counted(part["world_size"], "rank")
        notes.append(f"cluster {part['cluster']}, {ranks}{_batch_there(part)}, software profile {part['profile']}")
        notes.append("the plan fits" if part["feasible"] else "THE PLAN DOES NOT FIT")
    return Table(title, ("phase", "ms", "share"), tuple(rows), "; ".join(notes), ("ms", "share"))


def _added(part: dict) -> str:
    """What a process takes on top of what it took without a model. Records of earlier versions do not have it."""
    return f", training takes {human_bytes(part['added_memory_bytes'])}" if part.get("added_memory_bytes") is not None else ""


def collectives(run: Run, origin: str) -> Table:
    """The collectives of one iteration. `bytes` is what a rank puts in."""
    part = run.result[origin]
    title = f"Collectives ({origin})"
    columns = ("name", "kind", "group", "bytes", "ms")
    if not part:
        return Table(title, columns, (), absent(run.result, origin))
    hidden = origin == "simulated" and run.hides_simulation
    rows = [
        (c["name"], c["kind"], _group(c["group"]), size(c["bytes"]), "not calibrated" if hidden else _timed(c["ms"]))
        for c in part["collectives"] or []
    ]
    return Table(title, columns, tuple(rows), "" if rows else "none: one rank exchanges nothing", ("bytes", "ms"))


def _timed(ms: float | None) -> str:
    return "not timed" if ms is None else number(ms, 3)


def environment(run: Run) -> Table:
    """What the run ran on."""
    e = run.environment
    if not e:
        return Table("Environment", ("fact", "value"), (), "not recorded: no environment.json")
    hardware, packages = e.get("hardware") or {}, e.get("packages") or {}
    commit = e.get("commit") or UNKNOWN
    gpus = [g["name"] for g in hardware.get("gpus") or []]
    rows = [
        ("command", " ".join(e.get("argv") or []) or UNKNOWN),
        ("commit", commit + {True: " with uncommitted changes", False: "", None: ""}[e.get("dirty")]),
        ("python", str(e.get("python") or UNKNOWN)),
        ("processor", f"{hardware.get('cpu') or UNKNOWN}, {hardware.get('cores') or UNKNOWN} cores"),
        ("memory", human_bytes(hardware["memory_bytes"]) if hardware.get("memory_bytes") else UNKNOWN),
        ("GPUs", ", ".join(f"{n} x {name}" for name, n in Counter(gpus).items()) or "none"),
        ("packages", ", ".join(f"{name} {packages[name]}" for name in KEY_PACKAGES if name in packages) or UNKNOWN),
    ]
    return Table("Environment", ("fact", "value"), tuple(rows))


KEY_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu", "lightning", "hydra-core", "wandb", "numpy")


def absent(result: dict[str, Any], part: str) -> str:
    """Why a part of the record is null, in words."""
    did = {"measured": "trained", "quality": "evaluated", "simulated": "simulated", "plan": "planned"}[part]
    if error := result.get("error"):
        return f"not {did}: the run failed ({error['type']}: {error['message']})"
    if part == "measured" and result.get("quality"):
        return f"not measured: too few steps, the first {WARM_UP} are not timed"
    return f"not {did}: mode={result['mode']}"


def _group(group: Any) -> str:
    """Cut where it would push the bytes away."""
    text = group if isinstance(group, str) else ranks_text(group)
    return text if len(text) <= LONGEST_GROUP else f"{text[:LONGEST_GROUP].rpartition(',')[0]},..."


def number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.3f} ms" if value < 10 else f"{value:,.1f} ms"


def size(value: float | None) -> str:
    return UNKNOWN if value is None else human_bytes(value)


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def share(value: float | None, whole: float | None) -> str:
    return UNKNOWN if value is None or not whole else f"{value / whole:.0%}"
