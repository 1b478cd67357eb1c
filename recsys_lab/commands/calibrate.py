"""`python -m recsys_lab calibrate`: measures this machine, fits its cluster and profile, and writes them for `cluster=local`."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import psutil
from omegaconf import DictConfig

from launchers.local import launch
from launchers.processes import warm
from recsys_lab.arguments import parser
from recsys_lab.calibrate import figures, work
from recsys_lab.calibrate.measured import Measured
from recsys_lab.calibrate.runs import Run, brief, runs
from recsys_lab.calibrate.written import write
from recsys_lab.cluster import Cluster
from recsys_lab.config.calibrated import VARIABLE, folder
from recsys_lab.errors import UserError
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.simulate import Profile

#: The trainings that the profile is fitted to: one model where a rank holds most pieces of tables and where it holds fewest; shares of the
#: config's batch.
FIT_SHARDERS, FIT_BATCHES = ("flexshard_3tier", "dmt_sptt"), (1 / 4, 1, 2)
ROUNDS = 2


def main(argv: list[str]) -> int:
    """Measures, fits, writes, and says what it found."""
    line = parser("calibrate", "Measure this machine (about a minute on two cores), so that simulations of cluster=local tell its times.")
    line.add_argument("overrides", nargs="*", help="as for run.py, such as launcher.hosts=1 launcher.ranks_per_host=2")
    line.add_argument("--out", metavar="DIR", help=f"where to write; else where cluster=local looks: {VARIABLE}, or ~/.config/recsys_lab")
    line.add_argument("--json", action="store_true", help="print what was measured and written as one JSON object")
    given = line.parse_args(argv)
    quiet_torchrec()
    where = Path(given.out).expanduser() if given.out else folder()
    if where is None:
        raise UserError("no folder to write to", where=VARIABLE, given="none", remedy="--out DIR")
    warm()
    config = brief(["cluster=local", *given.overrides])
    measured = measure(config)
    cluster, profile = described(measured)
    points = [(name, max(int(config.data.batch_size * share), 1)) for name in FIT_SHARDERS for share in FIT_BATCHES]
    _say(f"short trainings, to which {', '.join(figures.FITTED_TO_RUNS + figures.MEMORY_FITTED_TO_RUNS)} are fitted:")
    trained = runs(points, given.overrides, ROUNDS, _say)
    profile = with_errors(figures.fitted_to(trained, cluster, figures.memory_fitted_to(trained, profile)), trained, cluster)
    paths = write(where, cluster, profile)
    if given.json:
        made = {
            "written": [str(path) for path in paths],
            "cluster": asdict(cluster),
            "profile": asdict(profile),
            "measured": asdict(measured),
        }
        print(json.dumps(made, indent=2))
    else:
        _show(paths, cluster, profile, trained)
    return 0


def measure(config: DictConfig) -> Measured:
    """All ranks that the launcher of `config` would start here, at once."""
    hosts, ranks = config.launcher.hosts, config.launcher.ranks_per_host
    _say(f"{hosts} hosts x {ranks} ranks on this machine, all at it at once:")
    with tempfile.TemporaryDirectory() as logs:
        arguments = {"hosts": hosts, "ranks_per_host": ranks}
        return launch(
            work.measure, arguments, Path(logs), hosts=hosts, ranks_per_host=ranks, threads_per_rank=config.launcher.threads_per_rank
        )


def described(measured: Measured) -> tuple[Cluster, Profile]:
    """What `measured` says without any training."""
    ranks = measured.hosts * measured.ranks_per_host
    cluster = figures.cluster_of(measured, psutil.virtual_memory().total / 1e9 / ranks)
    profile = figures.dense_figures(figures.START, cluster, measured.machine.dense)
    profile = figures.dots_figures(profile, cluster, measured.machine.dots)
    return cluster, figures.table_figures(profile, cluster, measured.machine.tables)


def with_errors(profile: Profile, trained: Sequence[Run], cluster: Cluster) -> Profile:
    """`profile` with what it was fitted to, and the error of fits without each point."""
    errors = []
    for run in trained:
        others = figures.fitted_to([other for other in trained if other is not run], cluster, profile)
        errors.append(math.log(run.simulated(cluster, others).iteration_ms / run.iteration_ms))
    return replace(
        profile,
        fitted_on={run.name: run.iteration_ms for run in trained},
        relative_error=math.sqrt(sum(error**2 for error in errors) / len(errors)),
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(paths: Sequence[Path], cluster: Cluster, profile: Profile, trained: Sequence[Run]) -> None:
    device = cluster.device
    peaks = ", ".join(f"{name} {peak * 1e3:.0f}" for name, peak in device.peak_tflops.items())
    print(f"a rank's part: memory {device.memory_bandwidth_gb_s:.1f} GB/s, matrix products in GFLOP/s: {peaks}")
    for name, link in (("within hosts", cluster.intra_host), ("across hosts", cluster.cross_host)):
        print(f"links {name}: {link.bandwidth_gb_s:.2f} GB/s, ring {link.around_gb_s:.2f} GB/s, {link.latency_us:.0f} us a step")
    memory = f"{profile.process_memory_mb:.0f} MB a process, {profile.buffer_factor:.2f} times the plan's buffers"
    print(f"profile: {profile.iteration_overhead_ms:.1f} ms an iteration, {profile.launch_overhead_us:.0f} us a launch; {memory}")
    for run in trained:
        simulated = run.simulated(cluster, profile).iteration_ms
        off = f"{simulated / run.iteration_ms - 1:+.0%}"
        print(f"fitted: {run.name}: measured {run.iteration_ms:.1f} ms, simulated {simulated:.1f} ms ({off})")
    print(f"written: {', '.join(map(str, paths))}")
    print("predictions of what was not fitted: python -m recsys_lab validate --local")
