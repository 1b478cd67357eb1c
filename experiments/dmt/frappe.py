"""What two towers cost on Frappe: flat DLRM and DMT over paired seeds, each a run of run.py that is not made twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev

from recsys_lab.base.progress import Progress
from recsys_lab.base.ranges import Rounds, Threads
from recsys_lab.data.sources import check_root
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.record.result import read_result
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.study import Line, Study
from recsys_lab.sweeps.statistics import Estimate, paired_difference, rank_sum_p

PROJECT = Path(__file__).parents[2]
#: Both sides of a pair have the same tables; one process trains both towers, which makes the same model as two hosts do.
PLAIN = (
    "mode=train",
    "logger=none",
    "launcher.hosts=1",
    "launcher.ranks_per_host=1",
    "trainer.evaluate_every_epochs=0",
    "trainer.evaluate_train_rows=0",
    "trainer.checkpoint_every_steps=0",
    "trainer.progress_bar=false",
)
WORDS = ("experiment=frappe", "model=dlrm", "model.embedding_dim=32", *PLAIN)
FLAT = "flat"
TWO_TOWERS = ("sharder=dmt", "sharder.towers.count=2")
ARMS = {
    FLAT: ("sharder=torchrec",),
    "dmt24": (*TWO_TOWERS, "model.tower.dim=24"),
    "dmt16": (*TWO_TOWERS, "model.tower.dim=16"),
}
ABOUT = {FLAT: "flat", "dmt24": "2T, 32 to 24", "dmt16": "2T, 32 to 16"}  # numbers a feature
BOUND = 0.002  # of AUC: so near counts as equal
LEVEL = 0.05  # intervals hold with 95 %
SPLIT = "validation"


@dataclass(frozen=True)
class Run:
    """One training. `folder`: where its record is, or will be. `given`: its words but for seed and data."""

    arm: str
    seed: int
    root: Path
    folder: Path
    given: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return [*self.given, f"seed={self.seed}", f"data.root={self.root}"]

    def auc(self) -> float | None:
        """None where it was not run to its end. Raises UserError where another config was."""
        if not (self.folder / "result.json").is_file():
            return None
        found = read_result(self.folder)
        if found["status"] != "completed":
            return None
        if found["config_fingerprint"] != of_words(self.words, where="frappe").fingerprint:
            raise UserError("a run of another config", where=self.folder, remedy="name another folder with --runs, or remove it")
        return float(found["quality"][SPLIT]["auc"])

    def train(self) -> None:
        """Raises UserError, with what the run said last, where it fails."""
        shutil.rmtree(self.folder, ignore_errors=True)  # what an interrupted one left
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        log = self.folder.with_suffix(".log")
        with log.open("w", encoding="utf-8") as out:
            line = [sys.executable, "run.py", *self.words, f"hydra.run.dir={self.folder}"]
            code = subprocess.run(line, cwd=PROJECT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            last = [text for text in log.read_text(encoding="utf-8").splitlines() if text.strip()][-1:]
            raise UserError("a run failed", where=log, given=last[0].strip() if last else f"exit code {code}", remedy="repeat the command")


def run(name: str, *, root: str | None, seeds: Rounds, towers: list[str], runs: str, jobs: Threads) -> Study:
    """`root`: the folder of Frappe's train.csv and valid.csv. `towers`: of ARMS, those to compare with the flat model.

    `runs`: the folder of the run folders; those that are there are not trained again. `jobs`: how many train at once.
    """
    if seeds < 1 or jobs < 1:
        raise UserError("too small", where="seeds, jobs", given=f"{seeds}, {jobs}", allowed="1 or more")
    for arm in towers:
        if arm not in ARMS or arm == FLAT:
            raise UserError("no such setting", where="towers", given=arm, allowed=", ".join(a for a in ARMS if a != FLAT))
    data = check_root(root).resolve()
    asked = [
        Run(arm, seed, data, Path(runs).resolve() / f"{arm}_seed{seed}", (*WORDS, *ARMS[arm]))
        for seed in range(1, seeds + 1)
        for arm in (FLAT, *towers)
    ]
    train([one for one in asked if one.auc() is None], jobs)
    found = {arm: [float(one.auc() or 0.0) for one in asked if one.arm == arm] for arm in (FLAT, *towers)}
    return compared(name, found)


def train(missing: list[Run], jobs: int) -> None:
    with Progress(len(missing), "training", "runs") as bar, ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one.train) for one in missing]
        try:
            for done in as_completed(waiting):
                done.result()
                bar.update()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def compared(name: str, found: dict[str, list[float]]) -> Study:
    """The study of validation AUC by arm, seed by seed."""
    flat, lines, statements, rows = found[FLAT], [], [], []
    rows.append((ABOUT[FLAT], f"{len(flat)}", f"{median(flat):.4f}", _spread(flat), "", "", ""))
    lines.append(Line("flat: median AUC", median(flat), origin="measured"))
    tests: dict[str, dict] = {}
    for arm, ours in found.items():
        if arm == FLAT:
            continue
        difference = median(ours) - median(flat)
        pairs: Estimate = paired_difference([a - b for a, b in zip(ours, flat)], LEVEL)
        p = rank_sum_p(ours, flat)
        lines.append(Line(f"{ABOUT[arm]}: median AUC", median(ours), origin="measured"))
        lines.append(Line(f"{ABOUT[arm]}: difference of the medians", difference, origin="measured"))
        statements.append((f"{ABOUT[arm]}: within {BOUND} AUC of the flat model", abs(difference) <= BOUND))
        interval = f"{pairs.value:+.4f} [{pairs.low:+.4f}, {pairs.high:+.4f}] {pairs.confidence:.1%}"
        rows.append((ABOUT[arm], f"{len(ours)}", f"{median(ours):.4f}", _spread(ours), f"{difference:+.4f}", interval, f"{p:.2g}"))
        tests[arm] = {"difference_of_medians": difference, "mann_whitney_u_p": p, "paired": vars(pairs)}
    columns = ("", "seeds", "median AUC", "standard deviation", "difference", "of pairs", "p")
    notes = (
        "AUC of the validation split, measured. p: Mann-Whitney U, two-sided, exact. Of pairs: Hodges and Lehmann's estimate of the "
        "difference at one seed, with its distribution-free interval.",
        f"DLRM with embeddings of 32 and {WORDS[0]}, flat and in 2 towers (2T), in strides, that send so many numbers a feature.",
    )
    table = Shown(f"{name}: does DMT keep the quality of its flat model?", columns, tuple(rows), "", columns[1:])
    data = {"auc": found, "tests": json.loads(json.dumps(tests))}
    return Study(name, "two towers on Frappe", tuple(lines), tuple(statements), notes, data, shown=table)


def _spread(values: list[float]) -> str:
    return f"{stdev(values):.4f}" if len(values) > 1 else "–"
