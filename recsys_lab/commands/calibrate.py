"""`python -m recsys_lab calibrate`: measures this machine, so that simulations of cluster=local tell its times."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from recsys_lab.arguments import parser
from recsys_lab.calibrate.calibration import Calibration, calibrate
from recsys_lab.calibrate.written import write
from recsys_lab.config.calibrated import VARIABLE, folder
from recsys_lab.errors import UserError
from recsys_lab.quiet import quiet_torchrec


def main(argv: list[str]) -> int:
    """Measures, fits, writes, and says what it found."""
    line = parser("calibrate", "Measure this machine (about a minute on two cores), so that simulations of cluster=local tell its times.")
    line.add_argument("overrides", nargs="*", help="as for run.py, such as launcher.hosts=1 launcher.ranks_per_host=2")
    line.add_argument("--out", metavar="DIR", help=f"where to write; else where cluster=local looks: {VARIABLE}, or ~/.config/recsys_lab")
    line.add_argument("--json", action="store_true", help="print what was measured and written as one JSON object")
    options = line.parse_args(argv)
    quiet_torchrec()
    where = Path(options.out).expanduser() if options.out else folder()
    if where is None:
        raise UserError("no folder to write to", where=VARIABLE, given="none", remedy="--out DIR")
    calibration = calibrate(options.overrides, _say, young=True)
    paths = write(where, calibration.cluster, calibration.profile)
    if options.json:
        record = {
            "written": [str(path) for path in paths],
            "cluster": asdict(calibration.cluster),
            "profile": asdict(calibration.profile),
            "measured": asdict(calibration.measured),
        }
        print(json.dumps(record, indent=2))
    else:
        _show(paths, calibration)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(paths: Sequence[Path], calibration: Calibration) -> None:
    cluster, profile = calibration.cluster, calibration.profile
    device = cluster.device
    peaks = ", ".join(f"{name} {peak * 1e3:.0f}" for name, peak in device.peak_tflops.items())
    print(f"a rank's part: memory {device.memory_bandwidth_gb_s:.1f} GB/s, matrix products in GFLOP/s: {peaks}")
    for name, link in (("within hosts", cluster.intra_host), ("across hosts", cluster.cross_host)):
        print(f"links {name}: {link.bandwidth_gb_s:.2f} GB/s, ring {link.around_gb_s:.2f} GB/s, {link.latency_us:.0f} us a step")
    memory = f"{profile.process_memory_mb:.0f} MB a process, {profile.buffer_factor:.2f} times the plan's buffers"
    print(f"profile: {profile.iteration_overhead_ms:.1f} ms an iteration, {profile.launch_overhead_us:.0f} us a launch; {memory}")
    for run in calibration.trained:
        simulated = run.simulated(cluster, profile).iteration_ms
        off = f"{simulated / run.iteration_ms - 1:+.0%}"
        print(f"fitted: {run.name}: measured {run.iteration_ms:.1f} ms, simulated {simulated:.1f} ms ({off})")
    print(f"written: {', '.join(map(str, paths))}")
    print("predictions of what was not fitted: python -m recsys_lab validate --local")
