"""What FlexShard and DMT save on a real network, emulated here. Prints one JSON object.

    .venv/bin/python experiments/benchmarks/emulated.py [--rounds N] [--only flexshard|dmt] [--keep DIR] [--under COMMAND] [--network FILE]

Runs of `run.py launcher=emulated cluster=emulated_4x2` take turns: eight processes, four hosts behind links of 400 Mbit/s. Before them
the network and the ranks are measured alone (`network`); the simulator takes these figures.

- `flexshard_3tier_comm_speedup`, `flexshard_2tier_comm_speedup`: how many times less time the exchange of embeddings takes. The model is
  FlexShard's RM-2 a thousand times smaller, with as many look-ups a row as the paper has. A collective transfers from when the last of
  its ranks has come; what overlaps is counted once. `..._in_flight` begins when a rank itself has issued it, so it includes waiting for
  late ranks. `..._bound` is the ratio of bytes on a host's link, those of the dense arch included.
- `dmt_throughput_ratio`: examples a second of four towers that compress four times, over the strong baseline (torchrec_strong). Both have
  FP16 communication, on a DLRM whose exchange is most of its iteration.
- `counter_vs_steps`: bytes that the kernel counted on the links over the payload of the recorded collectives, by sharder.

Each ratio is the median over rounds with its range; `..._simulated` is the simulator's for the same runs, `lines` has the times.
`python -m recsys_lab emulated COMPARISON` prints these and others as tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.emulated.command import compare
from experiments.emulated.comparisons import COMPARISONS, HOSTS, TRANSFER
from experiments.emulated.figures import as_json
from experiments.emulated.runs import calibrations

#: By comparison: of which lines, and what their ratios are called.
KEYS = {
    "flexshard": {"flexshard_3tier": "flexshard_3tier_comm_speedup", "flexshard_2tier": "flexshard_2tier_comm_speedup"},
    "dmt": {"dmt_4": "dmt_throughput_ratio", "dmt_sptt": "dmt_sptt_throughput_ratio"},
}
SHARDERS = {"dmt_4": "dmt"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=tuple(KEYS))
    parser.add_argument("--keep", type=Path, help="keep the run folders here")
    parser.add_argument("--under", default="", help="run each training under this command, such as 'nice -n -15'")
    parser.add_argument("--network", type=Path, help="what `python -m recsys_lab emulated links` printed, in place of measuring it now")
    given = parser.parse_args()
    under = shlex.split(given.under)
    networks = calibrations([COMPARISONS[name] for name in KEYS], under, given.network)
    made: dict[str, Any] = {}
    counters: dict[str, float] = {}
    lines: dict[str, Any] = {}
    for name in KEYS:
        if given.only in (None, name):
            comparison = COMPARISONS[name]
            wanted = (comparison.baseline, *KEYS[name])
            comparison = replace(comparison, lines={line: comparison.lines[line] for line in wanted})
            found, of_lines = compare(comparison, given.rounds, given.keep, networks, under)
            for one in found:
                key = KEYS[name][one.line]
                made |= {key: one.measured, f"{key}_range": one.range, f"{key}_simulated": one.simulated, f"{key}_bound": one.bytes}
                made |= {f"{key}_in_flight": one.under_way} if comparison.figure == TRANSFER else {}
            lines |= as_json(found, of_lines)["lines"]
            counters |= {SHARDERS.get(line, line): figures.counter_vs_steps for line, figures in of_lines.items()}
    print(json.dumps(made | {"counter_vs_steps": counters, "lines": lines, "network": networks[HOSTS]["figures"]}))


if __name__ == "__main__":
    main()
