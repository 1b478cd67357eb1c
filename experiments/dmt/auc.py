"""Tables 3 to 5 by AUC, where clicks are: Criteo's log by the paper's recipe, 8,000 rows of it, or Frappe. Paired seeds, runs of run.py."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Literal

from experiments.dmt.complexity import published
from experiments.dmt.frappe import BOUND, LEVEL, PLAIN, Run, train
from recsys_lab.base.ranges import Rounds, Threads
from recsys_lab.data.sources import check_root
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.study import Line, Study
from recsys_lab.sweeps.statistics import paired_difference

WIDE = 128  # N of the paper
#: Section 5.2: one epoch of batches of 128 K, Adam, N = 128, tables without a cap.
RECIPE = ("data=criteo", "data.min_count=1", "data.batch_size=131072", "trainer.max_epochs=1", "optimizer=default")
#: By data: its words, N, and what it is called. Of small data networks are ours: `experiment=` has what trains well there.
SETTINGS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "criteo": (RECIPE, WIDE, "Criteo's log"),
    "criteo_8k": (("experiment=criteo_8k",), 16, "the 8,000 rows of Criteo's log that are public samples"),
    "frappe": (("experiment=frappe",), 32, "Frappe"),
}
FEATURES = {"criteo": 26, "criteo_8k": 26, "frappe": 10}


def run(
    name: str,
    *,
    data: Literal["criteo", "criteo_8k", "frappe"],
    table: Literal["table3", "table4", "table5"],
    root: str | None,
    seeds: Rounds,
    runs: str,
    jobs: Threads,
) -> Study:
    """`root`: the folder of the data. `runs`: the folder of the runs; those that are there are not trained again. `jobs`: at once."""
    folder = check_root(root).resolve()
    rows = [row for row in rows_of(table) if row.get("towers", 0) <= FEATURES[data]]
    asked = [
        Run(row["what"], seed, folder, Path(runs).resolve() / f"{data}_{table}_{number}_seed{seed}", words_of(data, row))
        for seed in range(1, seeds + 1)
        for number, row in enumerate(rows)
    ]
    train([one for one in asked if one.auc() is None], jobs)
    found = {row["what"]: [float(one.auc() or 0.0) for one in asked if one.arm == row["what"]] for row in rows}
    return compared(name, data, rows, found)


def rows_of(table: str) -> list[dict[str, Any]]:
    """Of published.yaml; table 5, which has no flat model, begins with table 4's."""
    given = published()
    return list(given[table]) if table != "table5" else [given["table4"][0], *given[table]]


def words_of(data: str, row: dict[str, Any]) -> tuple[str, ...]:
    """Of run.py. Where embeddings are narrower than the paper's 128, so are the towers' vectors, in proportion."""
    words, width, _ = SETTINGS[data]
    kind = row["model"].removesuffix("_mlperf")
    model = (f"model={row['model']}",) if data == "criteo" else (f"model={kind}", f"model.embedding_dim={width}")
    if not row.get("towers"):
        return (*words, *model, "sharder=torchrec", *PLAIN)
    tower = {key: value * width // WIDE if key == "dim" else value for key, value in row.get("tower", {}).items()}
    given = [f"model.tower.{key}={'null' if value is None else value}" for key, value in tower.items()]
    return (*words, *model, "sharder=dmt", f"sharder.towers.count={row['towers']}", *given, *PLAIN)


def compared(name: str, data: str, rows: list[dict[str, Any]], found: dict[str, list[float]]) -> Study:
    """Each row's median AUC, and its difference from the flat model of its kind at the same seeds, with an interval."""
    is_paper = data == "criteo"
    flat = {row["model"]: row for row in rows if not row.get("towers")}
    lines, statements, shown = [], [], []
    for row in rows:
        ours, base = found[row["what"]], flat[row["model"]]
        lines.append(Line(f"{row['what']}: median AUC", median(ours), row["auc"] if is_paper else None, origin="measured"))
        cells = (row["what"], f"{row['auc']:.4f}", f"{median(ours):.4f}")
        if row is base:
            shown.append((*cells, "–", "–"))
            continue
        pairs = paired_difference([a - b for a, b in zip(ours, found[base["what"]])], LEVEL)
        interval = f"{pairs.value:+.4f} [{pairs.low:+.4f}, {pairs.high:+.4f}] {pairs.confidence:.1%}"
        shown.append((*cells, f"{row['auc'] - base['auc']:+.4f}", interval))
        lines.append(Line(f"{row['what']}: AUC from the flat model's", pairs.value, None, origin="measured"))
        sure = pairs.confidence >= 1 - LEVEL  # which needs six seeds
        statements.append((f"{row['what']}: as good as the flat model within {BOUND}, with its interval", sure and pairs.low >= -BOUND))
    columns = ("", "AUC, the paper", "AUC", "from flat, the paper", "from flat")
    note = f"Measured on the validation split of {SETTINGS[data][2]}, {len(next(iter(found.values())))} seeds."
    if not is_paper:
        note += " It is not the paper's data set: its AUCs are shown and not compared. Networks and widths are those that train well there."
    shown_table = Shown(f"{name}: AUC with towers and without", columns, tuple(shown), "", columns[1:])
    return Study(name, f"AUC with towers, on {data}", tuple(lines), tuple(statements), (note,), {"auc": found}, shown=shown_table)
