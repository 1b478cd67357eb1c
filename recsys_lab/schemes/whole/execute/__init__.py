"""Whole tables and column shards are of a TorchRec collection, whose exchange of pooled rows may be replaced by that of the CPU DLRM paper
(Kalamkar et al. 2020, sections IV-B and IV-C).

scatter_list    a scatter a table, and a gather of its gradient
fused_scatter   a scatter a rank, of all its tables' columns at once
all_to_all      one call

ways      the calls
pooled    one exchange in place of TorchRec's, forward and backward, overlapped or blocking
"""

from recsys_lab.executor.collection import run
from recsys_lab.executor.execution import Execution
from recsys_lab.schemes.whole.execute.pooled import exchange_by

EXECUTION = Execution(run, finish=exchange_by)
