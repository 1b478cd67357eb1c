"""recsys_lab: declarative experiments on training large recommendation models.

    import recsys_lab

    recsys_lab.simulate("model=dcn_mlperf", "data=random", sharder="dmt", cluster="h100x64").iteration_ms

Nothing else is imported until one of these is called: compose, plan, explain, simulate, decide, run, load (recsys_lab/api.py).
`recsys_lab.torchrec_plans` has what TorchRec's users call (recsys_lab/interop).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.2.0"  # the one place: pyproject.toml reads it

#: Functions, and where they are. Some have the name of a room, which stays importable and can be called as well.
FUNCTIONS = dict.fromkeys(("compose", "plan", "explain", "simulate", "run", "load"), "recsys_lab.api")
FUNCTIONS["decide"] = "recsys_lab.decide.decision"
ROOMS = ("plan", "simulate", "decide")


class _Room(ModuleType):
    """A room that has the name of a function, called as that function."""

    def __call__(self, *words: Any, **keys: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module(FUNCTIONS[name]), name)(*words, **keys)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """The import of a room sets it here."""
        if name in ROOMS and type(value) is ModuleType:
            value.__class__ = _Room
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in ROOMS:
            return importlib.import_module(f"recsys_lab.{name}")
        if name in FUNCTIONS:
            return getattr(importlib.import_module(FUNCTIONS[name]), name)
        if name == "torchrec_plans":
            return importlib.import_module("recsys_lab.interop.torchrec_plans")
        raise AttributeError(f"module 'recsys_lab' has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})


sys.modules[__name__].__class__ = _Package
