"""Steps of MLPerf's DLRMv4 on MI350X, what they are made of, one layer, and the rank that ran out of memory: published beside simulated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.dlrm_v4.priced import ROWS, SAMPLES, Case, Priced, cluster, layer_steps, priced, profile, published
from recsys_lab.base.progress import Progress
from recsys_lab.models.dlrm_v4 import HISTORY
from recsys_lab.plan.memory import missing_bytes, served_of_sequences
from recsys_lab.simulate import Simulated, simulate
from recsys_lab.simulate.costs import part_ms
from recsys_lab.simulate.order import is_dense_work
from recsys_lab.studies.study import Line, Study

FITTED = "What attention reaches of the peak is fitted to the five times, and what layers reach to the GEMMs of one of them."
PLANS = "A1 is taken to have A3's plan, and A2 what the reference pins on several hosts: their plans are not published."


def run(name: str) -> Study:
    return {"times": times, "parts": parts, "layer": layer, "hot_rank": hot_rank}[name]()


def case_of(given: dict) -> Case:
    return Case(given["cluster"], given["hosts"], published()["events"][given["events"]], given["plan"], given["dedup"])


def simulated(of: Priced) -> Simulated:
    return simulate(of.steps, of.cluster, profile(), of.plan, of.workload, memory=of.memory)[0]


def times() -> Study:
    found, lines = {}, []
    with Progress(len(published()["times"]), "dlrm_v4", "runs") as bar:
        for given in published()["times"]:
            found[given["what"]] = simulated(priced(case_of(given))).iteration_ms
            lines.append(Line(given["what"], found[given["what"]], given["ms"], "ms", "simulated", by_construction=True))
            bar.update()
    theirs, saved = ({run: _saved(run, ms) for run in ("A1", "A2")} for ms in (_published_ms(), found))
    lines += [Line(f"{run}: saved by equal ids once", of, theirs[run], "%", "simulated") for run, of in saved.items()]
    statements = (("equal ids once save more on two hosts than on one", saved["A2"] > saved["A1"]),)
    return Study("times", "a step of MLPerf's DLRMv4 on MI350X", tuple(lines), statements, (FITTED, PLANS))


def _published_ms() -> dict[str, float]:
    return {one["what"]: one["ms"] for one in published()["times"]}


def _saved(run: str, ms: Mapping[str, float]) -> float:
    """By equal ids once, of the step without, %."""
    of = {one["dedup"]: ms[one["what"]] for one in published()["times"] if one["what"].startswith(run)}
    return 100 * (1 - of[True] / of[False])


def parts() -> Study:
    """A3's. Waiting for the longest rank is time in a collective there."""
    given = next(one for one in published()["times"] if one["what"].startswith("A3"))
    of, theirs = priced(case_of(given)), published()["parts"]
    made = simulated(of)
    phases = made.phases_ms
    dense = [step for step in of.steps.steps if is_dense_work(step)]
    gemm = sum(part_ms(step, of.cluster, profile(), of.workload)["layers"] for step in dense)
    ours = {
        "GEMM": (gemm, theirs["gemm"]),
        "nothing runs on the device": (phases["input_copy"] + phases["host_launch"], theirs["idle"]),
        "communication that nothing hides": (
            phases["exposed_embedding_comm"] + phases["exposed_dense_sync"] + phases.get("wait_for_longest_rank", 0.0),
            theirs["exposed_communication"],
        ),
        "attention, element-wise, tables": (phases["compute"] - gemm, theirs["rest"]),
    }
    lines = [Line(what, ms, published_ms, "ms", "simulated", by_construction=what == "GEMM") for what, (ms, published_ms) in ours.items()]
    lines.append(Line("the step", made.iteration_ms, given["ms"], "ms", "simulated", by_construction=True))
    return Study("parts", "what a traced step on 8 x MI350X is made of", tuple(lines), (), (FITTED,))


def layer() -> Study:
    """One of the three, whole and for the candidate alone."""
    theirs, ours = published()["layer"], {}
    for which in ("all", "candidate"):
        work, steps = layer_steps(which, theirs["tokens"])
        ours[which] = sum(sum(part_ms(step, cluster("mi350x", 1), profile(), work).values()) for step in steps)
    lines = (
        Line("every token", ours["all"], theirs["all"], "ms", "simulated"),
        Line("the candidate alone", ours["candidate"], theirs["candidate"], "ms", "simulated"),
        Line("saved", ours["all"] - ours["candidate"], theirs["all"] - theirs["candidate"], "ms", "simulated"),
    )
    notes = (FITTED, "One kernel an operation, as PyTorch runs them. The reference fuses norms, gates and dropout into few.")
    return Study("layer", "a layer forward and backward, 2.727 M tokens on one MI350X", lines, (), notes)


def hot_rank() -> Study:
    """The plan of the run on 32 GPUs that ended: every table by row, all ids."""
    theirs = published()["hot"]
    few, many = (priced(Case("mi350x", theirs[hosts], theirs["events"], ROWS, dedup=False)) for hosts in ("tables_hosts", "hosts"))
    rows = np.sum([_served(many, name) for name in HISTORY], axis=0)
    of_tables = {f"{name}: the fullest of 8 ranks over the mean": (_served(few, name), of) for name, of in theirs["tables"].items()}
    of_tables["rows of the fullest of 32 ranks over the mean"] = (rows, theirs["times"])
    lines = [
        Line(what, float(own.max() / own.mean()), of, "times", "simulated", by_construction=True) for what, (own, of) in of_tables.items()
    ]
    lines += [
        Line(
            "a copy of them in FP32", rows.max() * many.plan.tables[0].row_bytes / 2**30, theirs["gib"], "GiB", "simulated", repeated=True
        ),
        Line("memory of that rank, of 288 GB", max(many.memory.totals) / 1e9, None, "GB", "simulated"),
    ]
    statements = (("the rank is out of memory", missing_bytes(many.memory, many.cluster)[0] > 0),)
    notes = ("The shares of tracks without an album and without an artist are fitted to the first three lines: data/yambda/law.py.",)
    return Study("hot_rank", "the rank that ran out of memory on 32 x MI350X", tuple(lines), statements, notes)


def _served(of: Priced, name: str) -> np.ndarray:
    """Rows of a step that each rank looks up, float64 [R]."""
    table, placement = of.plan.by_table[name]
    shares = served_of_sequences(table, placement, of.workload)
    asked = of.workload.lengths[name] * SAMPLES * of.plan.world_size
    return np.bincount([shard.ranks[0] for shard in placement.shards], shares * asked, of.plan.world_size)
