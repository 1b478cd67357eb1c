"""Table 2: an epoch of TorchRec's reported baselines and of the strong ones. Ours is simulated."""

from __future__ import annotations

from experiments.dmt.complexity import published
from experiments.dmt.speed import GPUS_PER_HOST, Case, priced
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.study import Line, Study

PLATFORM = "a100"
MS_PER_MINUTE = 60_000


def run(name: str) -> Study:
    lines: list[Line] = []
    shown: list[tuple[str, ...]] = []
    for row in published()[name]:
        strong = row["strong"]
        case = Case(row["model"], PLATFORM, GPUS_PER_HOST, "baseline", None, None, row["batch"] // GPUS_PER_HOST, strong, strong)
        iteration_ms = float(priced(case).iteration_ms)
        minutes = published()["epoch_samples"] / row["batch"] * iteration_ms / MS_PER_MINUTE
        line = Line(row["what"], minutes, row["minutes"], "minutes", "simulated")
        lines.append(line)
        figures = f"{row['minutes']:.0f}", f"{minutes:.0f}", f"{line.error:+.0%}", f"{iteration_ms:.2f}"
        shown.append((row["what"], f"{row['batch']:,}", f"{row['auc']:.4f}", *figures))
    columns = ("", "batch", "AUC", "minutes", "ours", "off", "ms an iteration")
    question = "an epoch of the baselines"
    notes = (
        "Ours is simulated, of the iterations alone: no evaluation, no reading of data. AUC is the paper's alone.",
        "The paper names no machine. TorchRec's published runs are on 8 A100; taken here with 80 GB, as Adam's state does not fit 40.",
        "The paper's strong DLRM and DCN take as long as each other, though DCN computes 6.5 times as much: iterations alone cannot "
        "explain both; reading data is not priced here.",
    )
    table = Shown(f"{name}: {question} (simulated)", columns, tuple(shown), "", columns[1:])
    return Study(name, question, tuple(lines), (), notes, shown=table)
