"""Tables 3 to 6 by AUC, where clicks are: Criteo's log by the paper's recipe, 8,000 rows of it, or Frappe. Paired seeds, runs of run.py."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Literal

from experiments.dmt.complexity import published
from experiments.dmt.frappe import BOUND, LEVEL, PLAIN, Run, train
from recsys_lab.base.ranges import Rounds, Threads
from recsys_lab.data.sources import check_root
from recsys_lab.report.sections import Table as Shown
from recsys_lab.sharders.dmt.names import STRIDED
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
#: Of each run; a logistic regression beside it would tell nothing here.
ALONE = (*PLAIN, "baselines=false")
FEATURES = {"criteo": 26, "criteo_8k": 26, "frappe": 10}


def run(
    name: str,
    *,
    data: Literal["criteo", "criteo_8k", "frappe"],
    table: Literal["table3", "table4", "table5", "table6"],
    model: Literal["dlrm", "dcn"] | None,
    root: str | None,
    seeds: Rounds,
    runs: str,
    jobs: Threads,
) -> Study:
    """`model`: the rows of which; null: of both. `root`: the folder of the data. `jobs`: how many runs at once.

    `runs`: the folder of the runs; those that are there are not trained again.
    """
    folder = check_root(root).resolve()
    rows = [row for row in rows_of(table) if row.get("towers", 0) <= FEATURES[data] and model in (None, _kind(row))]
    asked = [
        Run(
            row["what"],
            seed,
            folder,
            Path(runs).resolve() / f"{data}_{table}_{row['what'].replace(' ', '_')}_seed{seed}",
            words_of(data, row),
        )
        for seed in range(1, seeds + 1)
        for row in rows
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
    model: tuple[str, ...] = (f"model={_kind(row)}", f"model.embedding_dim={width}")
    if data == "criteo":  # its values decide the tables, not the published sizes
        model = (f"model={row['model']}", *(f"model.{key}=null" for key in ("rows", "lengths", "dense_features")))
    if data == "criteo" and "lr" in row:
        model += (f"optimizer.dense.lr={row['lr']}", f"optimizer.sparse.lr={row['lr']}")
    if not row.get("towers"):
        return (*words, *model, "sharder=torchrec", *ALONE)
    towers = ("sharder=dmt", f"sharder.towers.count={row['towers']}", f"sharder.towers.strategy={row.get('strategy', STRIDED)}")
    tower = {key: value * width // WIDE if key == "dim" else value for key, value in row.get("tower", {}).items()}
    given = [f"model.tower.{key}={'null' if value is None else value}" for key, value in tower.items()]
    return (*words, *model, *towers, *given, *ALONE)


def _kind(row: dict[str, Any]) -> str:
    return str(row["model"]).removesuffix("_dmt")


def base_of(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What a row is compared with: strided towers with the flat model, those that the partitioner finds with strided ones."""
    found = row.get("strategy", STRIDED) != STRIDED
    alike = [other for other in rows if other["model"] == row["model"] and other.get("strategy", STRIDED) == STRIDED]
    return next((other for other in alike if bool(other.get("towers")) == found), None) if row.get("towers") else None


def compared(name: str, data: str, rows: list[dict[str, Any]], found: dict[str, list[float]]) -> Study:
    """Each row's median AUC, and its difference at the same seeds from the row that it is compared with, with an interval."""
    is_paper = data == "criteo"
    lines, statements, shown = [], [], []
    for row in rows:
        ours, base = found[row["what"]], base_of(row, rows)
        lines.append(Line(f"{row['what']}: median AUC", median(ours), row["auc"] if is_paper else None, origin="measured"))
        cells = (row["what"], f"{row['auc']:.4f}" if row["auc"] else "–", f"{median(ours):.4f}")
        if base is None:
            shown.append((*cells, "–", "–", "–"))
            continue
        papers = f"{row['auc'] - base['auc']:+.4f}" if row["auc"] and base["auc"] else "–"
        pairs = paired_difference([a - b for a, b in zip(ours, found[base["what"]])], LEVEL)
        interval = f"{pairs.value:+.4f} [{pairs.low:+.4f}, {pairs.high:+.4f}] {pairs.confidence:.1%}"
        shown.append((*cells, base["what"], papers, interval))
        lines.append(Line(f"{row['what']}: AUC from {base['what']}'s", pairs.value, None, origin="measured"))
        sure = pairs.confidence >= 1 - LEVEL  # which needs six seeds
        if base.get("towers"):
            statements.append((f"{row['what']}: better than {base['what']}, with its interval", sure and pairs.low > 0))
        else:
            statements.append((f"{row['what']}: as good as the flat model within {BOUND}, with its interval", sure and pairs.low >= -BOUND))
    columns = ("", "AUC, the paper", "AUC", "compared with", "difference, the paper", "difference")
    note = f"Measured on the validation split of {SETTINGS[data][2]}, {len(next(iter(found.values())))} seeds."
    if not is_paper:
        note += " It is not the paper's data set: its AUCs are shown and not compared. Networks and widths are those that train well there."
    shown_table = Shown(f"{name}: AUC with towers and without", columns, tuple(shown), "", columns[1:])
    return Study(name, f"AUC with towers, on {data}", tuple(lines), tuple(statements), (note,), {"auc": found}, shown=shown_table)
