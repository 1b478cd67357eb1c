"""`python -m recsys_lab calibrate`: measures this machine or the ranks that are there, so that simulations tell their times."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import check_writable, path_of
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.calibrate.written import OF_THIS_MACHINE, check_name, paths_of, write
from recsys_lab.config.calibrated import VARIABLE, folder
from recsys_lab.config.no_run_folder import check_no_run_folder
from recsys_lab.errors import UserError, as_called

if TYPE_CHECKING:
    from recsys_lab.calibrate.calibration import Calibration

#: Where a folder of choices is found without a word.
HERE = Path("conf")
#: What its trainings differ in, or have in common.
SERIES = dict.fromkeys(("sharder", "data.rows_train", "simulate.batch_size"), "drop it: it trains under two sharders with three batches")
SERIES["trainer.max_steps"] = "drop it: each of its trainings has as many steps"


def main(argv: list[str]) -> int:
    """Measures, fits, writes, and says what it found."""
    line = parser("calibrate", "Measure this machine, so that simulations of cluster=local tell its times; or, with --name, any ranks.")
    line.add_argument("overrides", nargs="*", help="as for run.py, such as launcher.hosts=1 launcher.ranks_per_host=2")
    line.add_argument("--name", help="of a cluster, to be written to conf/ here (or --out): of the ranks of the launcher, torchrun or srun")
    line.add_argument("--out", metavar="DIR", help=f"where to write; else where cluster=local looks: {VARIABLE}, or ~/.config/recsys_lab")
    line.add_argument("--json", action="store_true", help="print what was measured and written as one JSON object")
    options = line.parse_intermixed_args(argv)
    check_no_run_folder(options.overrides, "calibrate", "train", "--out DIR says where to write", SERIES)
    quiet_torchrec()
    if options.name is not None:
        check_name(options.name)
    where = path_of(options.out, "--out") if options.out is not None else folder() if options.name is None else HERE
    if where is None:
        raise UserError("no folder to write to", where=VARIABLE, given="none", remedy="--out DIR")
    for path in paths_of(where, options.name or OF_THIS_MACHINE):
        check_writable(path)
    from recsys_lab.calibrate.calibration import calibrate  # with torch, which neither help nor a mistake needs

    calibration = calibrate(options.overrides, _say, named=options.name is not None)
    if calibration is None:
        return 0  # the first rank writes
    paths = write(where, calibration, options.name or OF_THIS_MACHINE)
    if options.json:
        record = {
            "written": [str(path) for path in paths],
            "cluster": asdict(calibration.cluster),
            "profile": asdict(calibration.profile),
            "measured": asdict(calibration.measured),
        }
        print(json.dumps(record, indent=2))
    else:
        _show(paths, calibration, options.name)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(paths: Sequence[Path], calibration: Calibration, name: str | None) -> None:
    cluster, profile = calibration.cluster, calibration.profile
    device = cluster.device
    peaks = ", ".join(f"{form} {peak * 1e3:.0f}" for form, peak in device.peak_tflops.items())
    print(f"a rank's part: memory {device.memory_bandwidth_gb_s:.1f} GB/s, matrix products in GFLOP/s: {peaks}")
    for where, link in (("within hosts", cluster.intra_host), ("across hosts", cluster.cross_host)):
        print(f"links {where}: {link.bandwidth_gb_s:.2f} GB/s, ring {link.around_gb_s:.2f} GB/s, {link.latency_us:.0f} us a step")
    memory = f"{profile.process_memory_mb:.0f} MB a process, {profile.buffer_factor:.2f} times the plan's buffers"
    print(f"profile: {profile.iteration_overhead_ms:.1f} ms an iteration, {profile.launch_overhead_us:.0f} us a launch; {memory}")
    for run in calibration.trained:
        simulated = calibration.simulated_ms(run)
        off = f"{simulated / run.iteration_ms - 1:+.0%}"
        print(f"fitted: {run.name_on(cluster)}: measured {run.iteration_ms:.1f} ms, simulated {simulated:.1f} ms ({off})")
    print(f"written: {', '.join(map(str, paths))}")
    if name is None:
        print("predictions of what was not fitted: python -m recsys_lab validate --local")
        return
    folder = paths[0].parents[1]
    search_path = "" if folder == HERE else f"hydra.searchpath=[file://{folder.resolve()}] "
    print(as_called(f"more hosts of it: python run.py mode=simulate {search_path}cluster={name} cluster.hosts=8"))
