"""Sections 8.5 and 5.2: model F in the memory of 16 hosts and their devices, and a software cache beside rows read in host memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.neo.priced import (
    FP16_TABLES,
    FP32,
    HOSTS,
    QUANTISED,
    SIMULATED,
    Case,
    Priced,
    base,
    cluster,
    priced,
    published,
    tables_of_case,
)
from recsys_lab.base.progress import Progress
from recsys_lab.base.store_names import AUTO, HOST, HOST_CACHED
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.studies.study import Line, Study

TERA = 1e12
#: By rows alone, as the paper has its giant tables (8.5).
PAPER = Case("neo_f", precision=QUANTISED, schemes=(ROW_WISE,), store=AUTO)
#: What the paper does not say, changed one at a time.
OTHERS = {
    "ids alike": replace(PAPER, exponent=0.0),
    "ids with exponent 0.8": replace(PAPER, exponent=0.8),
    "ids with exponent 1.2": replace(PAPER, exponent=1.2),
    "20 tables": replace(PAPER, parts=2),
    "40 tables": replace(PAPER, parts=4),
    "all-to-alls in FP32": replace(PAPER, precision=FP16_TABLES),
}
NOTES = (
    "neo_4d by rows, FP16 tables, FP16 and BF16 exchanges, 512 samples a GPU. A row in a cache is in its host's memory too, so some "
    "tables stay in device memory as a whole.",
    "Without a cache kernels read each row over the link. Unified memory moves pages: neither their size nor their traffic is published, "
    "nor which workloads gain 15 %.",
    "Not published either: how many tables F has (~ 10s; here 10), how skewed its ids are (here 1.05), its exchanges' formats. The lines "
    "without a published figure change one of these; 20 and 40 tables have the rows of 10, and as many look-ups each.",
    SIMULATED,
)


def run(name: str) -> Study:
    given, found = published()["model_f"], _priced()
    whole, direct = found[AUTO], found[HOST]
    plain, small, devices, hosts = _terabytes()
    lines = [
        Line("tables in FP32, a state a weight", plain, given["plain_tb"], "TB", "counted"),
        Line("tables in FP16, a state a row", small, given["small_tb"], "TB", "counted"),
        Line("device memory beside the reserve", devices, given["hbm_tb"], "TB", "counted", by_construction=True),
        Line("hosts' memory", hosts, given["dram_tb"], "TB", "counted", by_construction=True),
        Line("rows in hosts' memory", sum(bytes_of_ranks(whole.plan, whole.workload).beneath) / TERA, None, "TB", "counted"),
        Line("queries a second", whole.queries / 1e6, given["queries"] / 1e6, "M", "simulated"),
        Line("rows read in host memory: queries a second", direct.queries / 1e6, None, "M", "simulated"),
        Line("a software cache over that: gain", gain(PAPER), published()["software_cache"]["gain"], "%", "simulated"),
    ]
    for what, case in OTHERS.items():
        lines.append(Line(f"{what}: queries a second", priced(case).queries / 1e6, None, "M", "simulated"))
        lines.append(Line(f"{what}: gain of a software cache", gain(case), None, "%", "simulated"))
    anyhow = priced(replace(PAPER, schemes=None))
    lines.append(Line("any of seven schemes: queries a second", anyhow.queries / 1e6, None, "M", "simulated"))
    statements = (
        ("F fits neither the GPUs nor the hosts, and both together (8.5)", devices < small > hosts and small <= devices + hosts),
        ("giant tables are cut by rows over all hosts (8.5), also by choice", all(p.scheme == ROW_WISE for p in anyhow.plan.placements)),
        ("a software cache is faster than rows read in host memory (5.2)", gain(PAPER) > 0),
    )
    data = {
        store: {"iteration_ms": made.ms, "phases_ms": made.simulated.phases_ms, "tables": _tables(made)} for store, made in found.items()
    }
    question = "model F on 16 hosts: in whose memory, how fast, and what a software cache adds"
    return Study(name, question, tuple(lines), statements, NOTES, {"stores": data})


def gain(case: Case) -> float:
    """% of throughput: every table in host memory behind a cache, over every one read there."""
    return 100 * (priced(replace(case, store=HOST_CACHED)).queries / priced(replace(case, store=HOST)).queries - 1)


def _priced() -> dict[str, Priced]:
    """By store; and all that `OTHERS` need."""
    cases = [replace(case, store=store) for case in (PAPER, *OTHERS.values()) for store in (AUTO, HOST, HOST_CACHED)]
    with Progress(len(cases), "model F", "plans") as bar:
        for case in cases:
            priced(case)
            bar.update()
    return {store: priced(replace(PAPER, store=store)) for store in (AUTO, HOST, HOST_CACHED)}


def _terabytes() -> tuple[float, float, float, float]:
    """Tables in FP32 with a state a weight; in FP16 with one a row; what the devices have beside their reserve; and the hosts."""
    on, work = cluster(HOSTS), base("neo_f").workload
    assert on.host is not None
    sizes = []
    for precision, optimizer in ((FP32, "adagrad"), (FP16_TABLES, "row_wise_adagrad")):
        tables, _ = tables_of_case(replace(PAPER, precision=precision))
        of = replace(work, sparse_optimizer=optimizer)
        sizes.append(sum(t.weight_bytes + of.table_state_bytes(t.rows, t.dim) for t in tables) / TERA)
    return sizes[0], sizes[1], on.usable_memory_bytes * on.world_size / TERA, on.host.memory_gb * on.hosts / 1e3


def _tables(made: Priced) -> list[dict]:
    found = []
    for table, placement in zip(made.plan.tables, made.plan.placements):
        store = placement.store
        held = np.unique([shard.rows for shard in placement.shards])
        kind, share = (None, 1.0) if store is None else (store.kind, store.cached_share)
        found.append({"table": table.name, "rows": table.rows, "rows_of_rank": int(held.max()), "store": kind, "cached_share": share})
    return found
