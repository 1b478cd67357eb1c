"""One iteration of the small DLRM of Kalamkar et al. 2020 (table I) on one machine, four ways. Prints one JSON object.

    .venv/bin/python experiments/benchmarks/dlrm_small.py [--rounds N] [--threads 2]

Batch 2,048, 8 tables of 1M x 64, 50 look-ups each, uniform ids, the MLPs of table I; data and optimizer included. See one_machine.py.
`A_vs_B`: median over rounds of B's time over A's in that round. `A_share_of_limit`: the least time that the machine would need, over
A's. Needs 9 GB of memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.benchmarks import one_machine
from experiments.benchmarks.dlrm_contenders import problem

if __name__ == "__main__":
    one_machine.alone()
    one_machine.compare(__doc__, problem("model=dlrm_small", "data.exponent=0"))
