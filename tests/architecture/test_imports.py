"""Imports go one way. The checker is itself checked on a small house with one of each mistake."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.imports import LEAVES, MAY_IMPORT, broken_rules, imports_of, room_of, source_files, target_room

ROOT = Path(__file__).resolve().parents[2]


def test_every_import_of_the_house_goes_the_right_way() -> None:
    assert len(source_files(ROOT)) > 50
    assert broken_rules(ROOT) == []


def test_every_rule_is_for_a_room_that_exists_or_is_planned() -> None:
    rooms = {room_of(file.relative_to(ROOT)) for file in source_files(ROOT)} - {"__init__"}
    assert rooms <= set(MAY_IMPORT)
    assert set(MAY_IMPORT) - rooms <= {"kernels"}


def test_the_rules_themselves_allow_no_circle() -> None:
    assert list(TopologicalSorter(MAY_IMPORT).static_order())


def test_a_room_of_the_run_folder_is_allowed_no_more_than_it_uses() -> None:
    used: dict[str, set[str]] = {room: set() for room in MAY_IMPORT}
    for file in source_files(ROOT):
        for each in imports_of(ROOT, file):
            parts = each.target.split(".")
            if each.room in used and parts[0] in ("recsys_lab", "launchers"):
                used[each.room].add(parts[0] if parts[0] == "launchers" else target_room(parts))
    rooms = ("record", "report", "studies", "sweeps", "commands", "doctor", "calibrate", "partition")
    assert {room: sorted(MAY_IMPORT[room] - LEAVES - used[room]) for room in rooms} == {room: [] for room in rooms}


def test_a_command_is_called_by_nobody_but_the_command_line() -> None:
    assert [room for room, allowed in MAY_IMPORT.items() if "commands" in allowed] == []


def test_the_page_on_architecture_lists_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("\n## Packages\n") : page.index("\n## Why")]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(listed) == sorted(MAY_IMPORT)


def test_simulate_and_executor_never_meet() -> None:
    assert "executor" not in MAY_IMPORT["simulate"]
    assert "simulate" not in MAY_IMPORT["executor"]
    assert [room for room, allowed in MAY_IMPORT.items() if {"simulate", "executor"} <= allowed] == []


@pytest.mark.parametrize(
    ("file", "source", "says"),
    [
        ("recsys_lab/tables/spec.py", "from recsys_lab.plan import Shard", "tables must not import plan"),
        ("recsys_lab/simulate/engine.py", "def f():\n    import recsys_lab.executor.shard", "simulate must not import executor"),
        ("recsys_lab/executor/run.py", "from recsys_lab import simulate", "executor must not import simulate"),
        ("recsys_lab/plan/steps.py", "if TYPE_CHECKING:\n    import torch", "plan must not import torch"),
        ("recsys_lab/plan/parts/dense.py", "from ...train import rank", "plan must not import train"),
        ("recsys_lab/models/dcn/network.py", "import torch.distributed as dist", "models must not import torch.distributed"),
        ("recsys_lab/models/dcn/network.py", "from torch import distributed", "models must not import torch.distributed"),
        (
            "recsys_lab/models/dcn/network.py",
            "from torchrec.distributed.types import ShardingType",
            "models must not import torchrec.distributed",
        ),
        ("recsys_lab/report/page.py", "import wandb", "report must not import wandb"),
        ("recsys_lab/data/x.py", "from recsys_lab.train.rank import Job", "data must not import train"),
        ("recsys_lab/train/x.py", "from tests.ranks import spawn", "train must not import tests"),
        ("recsys_lab/novel/x.py", "import math", "room novel has no line"),
        ("launchers/local.py", "from recsys_lab import pipeline", "launchers must not import pipeline"),
        ("recsys_lab/units.py", "import recsys_lab", "units must not import recsys_lab"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, source: str, says: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source + "\n")
    found = broken_rules(tmp_path)
    assert len(found) == 1
    assert says in found[0]
    assert found[0].startswith(f"{file}:{source.count(chr(10)) + 1}:")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("recsys_lab/record/wandb_run.py", "import wandb"),
        ("recsys_lab/plan/steps.py", "import numpy, json\nfrom recsys_lab.tables import Table\nfrom . import sharding_plan"),
        ("recsys_lab/models/dcn/network.py", "import torch\nfrom torchrec.modules.crossnet import LowRankCrossNet"),
        ("recsys_lab/pipeline.py", "from recsys_lab.simulate import simulate\nfrom recsys_lab.train.rank import train"),
        ("run.py", "from launchers import torchrun"),
    ],
)
def test_a_right_import_is_let_be(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source + "\n")
    assert list(imports_of(tmp_path, path))
    assert broken_rules(tmp_path) == []
