"""How looked-up rows of tables may move, by name."""

from __future__ import annotations

#: The CPU DLRM paper's algorithms 2 and 3, 3 with atomic additions, and 4, as kernels/csrc/strategies.cpp numbers them.
STRATEGIES = ("reference", "atomic", "race_free")
#: default: the gradient of a row is summed first, then the row moves once.
ROW_UPDATES = ("default", *STRATEGIES)
