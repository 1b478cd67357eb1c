"""One iteration of MLPerf's DLRM (Kalamkar et al. 2020, table I) on one machine, four ways. Prints one JSON object.

    .venv/bin/python experiments/benchmarks/dlrm_mlperf.py [--rounds N] [--threads 2]

Batch 2,048, 26 tables of 128 columns and one look-up each (the paper's configuration, not the 214 look-ups of MLPerf v3.0), power-law
ids; data and optimizer included. Tables are capped at 500,000 rows, 2 GB in all, so that the four fit beside one another. The keys are
those of dlrm_small.py; see one_machine.py. Needs 9 GB of memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from omegaconf import OmegaConf

from experiments.benchmarks import one_machine
from experiments.benchmarks.dlrm_contenders import problem
from recsys_lab.config.command_line import CONF

MOST_ROWS = 500_000

if __name__ == "__main__":
    rows = [min(rows, MOST_ROWS) for rows in OmegaConf.load(CONF / "model" / "dlrm_mlperf.yaml").rows]
    one_machine.alone()
    one_machine.compare(__doc__, problem("model=dlrm_mlperf", f"model.rows={rows}"))
