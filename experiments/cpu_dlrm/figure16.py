"""Figure 16: plain SGD in FP32, with Split-SGD-BF16, in BF16 with and without master weights, and the paper's two failed controls.

Each run is a line of run.py in a process of its own, two at once.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Annotated

from experiments.cpu_dlrm import quality
from experiments.cpu_dlrm.quality import FIXED, Run, do_all
from experiments.cpu_dlrm.tables import published
from recsys_lab.base.ranges import OneOf, Rounds
from recsys_lab.data.sources import check_root
from recsys_lab.errors import UserError
from recsys_lab.studies.pictures import BLUE, GREEN, GREY, INK, ORANGE, PINK, picture, written
from recsys_lab.studies.study import Study

AT_ONCE = 2
QUESTION = "validation AUC by how weights are stored, and how far from FP32's"
COLOURS = {"fp32": GREY, "split_sgd_bf16": BLUE, "bf16": GREEN, "bf16_alone": ORANGE, "split_8": PINK, "fp16_stochastic": INK}
#: The paper's optimizer. At a batch of 128 FP32 reached an AUC of 0.8401 with a rate of 0.5 and 0.8303 with 0.1, one seed each. Here batch
#: and rate are four times that.
SGD = ("optimizer.dense.name=sgd", "optimizer.sparse.name=sgd")


def _rates(rate: float) -> tuple[str, ...]:
    return (*SGD, f"optimizer.dense.lr={rate}", f"optimizer.sparse.lr={rate}")


DATA = {
    "synthetic": ("data=synthetic", "data.rows_train=250000", "data.rows_test=0", "data.batch_size=512", *_rates(2.0)),
    "criteo": ("data=criteo", "trainer.max_epochs=3", *_rates(0.5)),
}
#: Variant -> the overrides that make it.
VARIANTS = {
    "fp32": ("precision=fp32",),
    "split_sgd_bf16": ("precision=split_sgd_bf16",),
    "bf16": ("precision=bf16",),
    "bf16_alone": ("precision=bf16", "precision.table=bf16", "precision.dense=bf16"),
    "split_8": ("precision=split_sgd_bf16", "precision.table=split_bf16_8", "precision.dense=split_bf16_8"),
    "fp16_stochastic": ("precision=fp16_tables", "precision.rounding=stochastic"),
}
#: Those that the bound is for. They run with every seed, the others with as many as are asked for.
COMPARED = ("fp32", "split_sgd_bf16")
#: "Not enough to train DLRM to required accuracy" (section VII).
CONTROLS = ("split_8", "fp16_stochastic")
WHAT = {
    "fp32": "FP32",
    "split_sgd_bf16": "Split-SGD-BF16",
    "bf16": "BF16, FP32 masters",
    "bf16_alone": "BF16 alone",
    "split_8": "split, 8 low bits",
    "fp16_stochastic": "FP16 tables, rounded stochastically",
}
ALONE = ("launcher.hosts=1", "launcher.ranks_per_host=1")


OTHERS = tuple(variant for variant in VARIANTS if variant not in COMPARED)


def run(
    name: str,
    *,
    seeds: Rounds = 1,
    others: Rounds | None = None,
    variants: list[Annotated[str, OneOf(OTHERS)]] | None = None,
    runs: str = "runs/cpu_dlrm",
    root: str | None = None,
) -> Study:
    """`seeds` 1 to that of FP32 and Split-SGD-BF16, `others` of the other `variants` (null: as many, and all). `root`: the folder of
    Criteo's log, null to leave it out. `runs`: the folder of the runs; one that is there with the same overrides is not run again.
    """
    if seeds < 1:
        raise UserError("too few", where="seeds", given=seeds, allowed="1 or more")
    criteo = None if root is None else check_root(root).resolve()
    beside = OTHERS if variants is None else tuple(variants)
    all_runs = runs_of(seeds, seeds if others is None else others, Path(runs).resolve(), criteo, beside)
    do_all(all_runs, AT_ONCE)
    return study_of(name, all_runs)


def runs_of(seeds: int, others: int, folder: Path, criteo: Path | None, beside: tuple[str, ...] = OTHERS) -> list[Run]:
    """Seed after seed, the two that are compared before the others, so that what is there after a while can be compared."""
    roots = {"synthetic": ()} | ({} if criteo is None else {"criteo": (f"data.root={criteo}",)})
    found = []
    for variants, last in ((COMPARED, seeds), (beside, others)):
        for seed in range(1, last + 1):
            for data, root in roots.items():
                for variant in variants:
                    overrides = (*DATA[data], *FIXED, *ALONE, *root, *VARIANTS[variant], f"seed={seed}")
                    found.append(Run(data, variant, seed, folder / data / variant / f"seed_{seed}", overrides))
    return found


def study_of(name: str, all_runs: list[Run]) -> Study:
    error = published()["figure16"]["split_sgd_bf16_error"]
    legend = f"Measured here. Published for Split-SGD-BF16, the MLPerf model on Criteo Terabyte: an error of less than {error} %."
    return quality.study_of(name, QUESTION, all_runs, WHAT, COMPARED, legend, partial(_draw, all_runs), CONTROLS)


def _draw(all_runs: list[Run], folder: Path) -> list[Path]:
    """Learning curves, a panel a data set: the median over the seeds that all variants have. AUC where a run is evaluated on the way."""
    panels = list(dict.fromkeys(one.data for one in all_runs))
    with picture(folder / "figure16.svg", columns=len(panels), width=4.8 * len(panels)) as (_, axes):
        for axis, data in zip(axes, panels):
            of_variants = [{one.seed for one in all_runs if (one.data, one.variant) == (data, variant)} for variant in VARIANTS]
            seeds = set.intersection(*filter(None, of_variants))
            evaluated = all(len(one.curve) > 2 for one in all_runs if one.data == data)
            for variant in (variant for variant, own in zip(VARIANTS, of_variants) if own):
                own = [one for one in all_runs if (one.data, one.variant) == (data, variant) and one.seed in seeds]
                curves = [dict(one.curve if evaluated else one.losses) for one in own]
                steps = sorted(set.intersection(*map(set, curves)))
                medians = [statistics.median(curve[step] for curve in curves) for step in steps]
                axis.plot(steps, medians, marker="o", markersize=3, color=COLOURS[variant], label=WHAT[variant])
            axis.set_title(data)
            axis.set_xlabel("step")
            axis.set_ylabel("validation AUC, measured" if evaluated else "log loss of training, measured")
        axes[-1].legend()
    return written(folder, "figure16")
