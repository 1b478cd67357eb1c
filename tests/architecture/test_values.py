"""What the pure rooms hand to each other are values: no field of theirs changes after they are made, and equal ones are one key."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import is_dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("cluster", "tables", "precision", "plan", "schemes", "sharders", "simulate", "config")


@pytest.mark.parametrize("room", ROOMS)
def test_every_dataclass_is_frozen(room: str) -> None:
    found = {}
    for path in sorted((ROOT / "recsys_lab" / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "execute" in parts:  # torch, not values
            continue
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__ and is_dataclass(kind):
                found[f"{module.__name__}.{name}"] = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert found and [name for name, frozen in found.items() if not frozen] == []
