"""Models for one device, each file one paper's figure. They know nothing of ranks. Their tables can be replaced by sharded ones.

What is named here is imported when it is asked for: some files of this room need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recsys_lab.models.concat import Concat
    from recsys_lab.models.dcn import DCN
    from recsys_lab.models.dlrm import DLRM
    from recsys_lab.models.initial import fill_tables, initialise_dense
    from recsys_lab.models.sequence import Sequence
    from recsys_lab.models.workload import ModelCost, describe

__all__ = ["Concat", "DCN", "DLRM", "ModelCost", "Sequence", "describe", "fill_tables", "initialise_dense"]
_FILES = {
    "Concat": "concat",
    "DCN": "dcn",
    "DLRM": "dlrm",
    "ModelCost": "workload",
    "Sequence": "sequence",
    "describe": "workload",
    "fill_tables": "initial",
    "initialise_dense": "initial",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
