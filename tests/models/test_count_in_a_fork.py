"""`decide` counts models in forks of a process that has counted one. OpenMP's threads do not survive a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COUNT = """
import multiprocessing
from recsys_lab.experiment import of_words

experiment = of_words(["model=dlrm_v4", "mode=simulate"], where="test")
data = experiment.open_data()
tables, lengths = experiment.tables(data), {feature.name: feature.mean_length for feature in data.features}

def counted(compute_format):
    assert experiment.model.counted(tables, 0, (), lengths, compute_format).dense_parameters == 15_243_057

counted("fp32")
fork = multiprocessing.get_context("fork").Process(target=counted, args=("bf16",))
fork.start()
fork.join(90)
print("ended", fork.exitcode)
fork.kill()
"""


def test_a_fork_counts_as_well(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip().splitlines()[-1:] == ["ended 0"], done.stderr
