"""Rows over the ranks of a host are of a TorchRec collection."""

from recsys_lab.executor.collection import run
from recsys_lab.executor.execution import Execution

EXECUTION = Execution(run)
