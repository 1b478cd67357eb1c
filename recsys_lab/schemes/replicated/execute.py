"""A replicated table is one of a TorchRec collection's; our look-up averages the gradients of its copies."""

from recsys_lab.executor.collection import run
from recsys_lab.executor.execution import Execution

EXECUTION = Execution(run)
