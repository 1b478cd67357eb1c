"""Reads who imports whom from the source, without running it, and says what breaks the rules of the house."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LEAVES = frozenset({"errors", "units", "base"})
DESCRIPTION = LEAVES | {"cluster", "tables", "precision"}

#: What each room may import of ours. A room that is not here may not exist.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "errors": frozenset(),
    "units": frozenset(),
    "base": frozenset({"errors", "units"}),
    "cluster": LEAVES,
    "tables": LEAVES,
    "precision": LEAVES | {"tables"},
    "plan": DESCRIPTION,
    "schemes": DESCRIPTION | {"plan"},
    "sharders": DESCRIPTION | {"plan", "schemes"},
    "simulate": DESCRIPTION | {"plan"},
    "kernels": LEAVES,
    "models": DESCRIPTION | {"plan", "kernels", "data", "config"},
    "executor": DESCRIPTION | {"plan", "models", "kernels"},
    "schemes/execute": DESCRIPTION | {"plan", "schemes", "models", "kernels", "executor"},
    "data": LEAVES | {"tables", "plan", "cluster"},
    "record": LEAVES | {"tables", "plan", "simulate"},
    "report": LEAVES | {"tables", "plan", "cluster", "data", "simulate", "record"},
    "config": LEAVES | {"tables"},
    "experiment_groups": DESCRIPTION | {"sharders", "models", "data", "config"},
    "experiment": DESCRIPTION | {"plan", "sharders", "simulate", "models", "data", "config", "experiment_groups"},
    "studies": LEAVES | {"record", "report", "config", "experiment"},
    "train": DESCRIPTION | {"plan", "models", "kernels", "executor", "data", "record", "report", "config", "experiment", "lightning"},
    "planning": LEAVES
    | {"cluster", "tables", "plan", "sharders", "simulate", "models", "data", "record", "config", "experiment", "partition"}
    | {"experiment_groups"},
    "store_curve": LEAVES | {"plan", "simulate", "record", "experiment", "planning"},
    "pipeline": LEAVES | {"plan", "simulate", "record", "report", "config", "experiment", "planning", "store_curve", "train"},
    "job": LEAVES | {"config", "record", "report", "train", "experiment", "pipeline", "studies"},
    "sweeps": LEAVES | {"config", "record", "report", "job", "launchers"},
    "doctor": LEAVES,
    "calibrate": LEAVES
    | {"cluster", "precision", "plan", "simulate", "kernels", "models", "config", "report", "experiment", "planning", "pipeline"}
    | {"train", "launchers"},
    "partition": LEAVES | {"tables", "plan", "sharders", "models", "data", "config", "experiment", "report"},
    "decide": LEAVES | {"cluster", "tables", "plan", "simulate", "data", "config", "report", "experiment", "planning"},
    "api": LEAVES | {"tables", "plan", "simulate", "record", "config", "experiment", "planning"},
    "interop": LEAVES | {"tables", "plan", "schemes", "sharders", "executor", "data", "experiment", "api"},
    "lightning": LEAVES | {"plan", "executor", "interop"},
    "export": LEAVES | {"tables", "plan", "models", "data", "record", "config", "experiment", "train"},
    "commands": LEAVES
    | {"sharders", "plan", "data", "config", "record", "report", "sweeps", "studies", "experiment", "api", "interop"}
    | {"doctor", "calibrate", "partition", "decide", "export"},
    "__main__": LEAVES,
    "launchers": LEAVES | {"train"},
    "run": LEAVES | {"config", "job", "launchers", "sweeps", "studies"},
}

#: Packages that only some rooms may import, and those rooms (or single files).
ONLY_IN: Mapping[str, frozenset[str]] = {
    "wandb": frozenset({"record/wandb_run.py"}),
    "ray": frozenset({"launchers"}),
    "mlflow": frozenset({"record/mlflow_run.py", "record/mlflow_logger.py"}),
    "torch": frozenset({"data", "models", "kernels", "sharders", "executor", "schemes/execute", "record", "train"})
    | {"experiment", "partition", "doctor", "calibrate", "launchers", "interop", "lightning", "export", "base/devices.py"},
    "torchrec": frozenset({"data", "models", "sharders", "executor", "schemes/execute", "train", "partition", "doctor", "launchers"})
    | {"interop", "lightning"},
    "lightning": frozenset({"record", "train", "launchers", "lightning"}),
    "triton": frozenset({f"kernels/triton_{name}.py" for name in ("embedding", "kernels", "attention")}),
    "omegaconf": frozenset({"config", "models/choice.py", "experiment", "experiment_groups", "job", "run", "sweeps", "launchers"}),
    "hydra": frozenset({"config", "train", "sweeps/run.py", "sweeps/ablation.py"}),
}
#: Single files that may import more, and why.
ALSO: Mapping[tuple[str, str], str] = {
    ("recsys_lab/partition/of_run.py", "train"): "reads the checkpoint of a run, which the command alone asks for",
    ("launchers/agent.py", "plan"): "imports ahead of time what every rank will need",
}
#: Single-device code: of torch and torchrec nothing that is distributed.
NOT_IN: Mapping[str, frozenset[str]] = {"models": frozenset({"torch.distributed", "torchrec.distributed"})}


@dataclass(frozen=True)
class Import:
    """`file` (relative to the root), in `room`, imports the module or name `target` on line `line`."""

    file: str
    line: int
    room: str
    target: str


def room_of(file: Path) -> str:
    """`recsys_lab/plan/steps.py` -> plan, `recsys_lab/job.py` -> job, `launchers/local.py` -> launchers, `run.py` -> run.

    What executes a scheme is a room of its own: the rest of its folder imports no torch.
    """
    inner = file.parts[1:] if file.parts[0] == "recsys_lab" else file.parts
    if inner[0] == "schemes" and inner[2:] and inner[2].removesuffix(".py") == "execute":
        return "schemes/execute"
    return inner[0].removesuffix(".py")


def target_room(parts: list[str]) -> str:
    """The room of an imported name of ours, `recsys_lab.plan.steps.Step` -> plan."""
    return "schemes/execute" if parts[1:2] == ["schemes"] and parts[3:4] == ["execute"] else ".".join(parts[1:2])


def imports_of(root: Path, file: Path) -> Iterator[Import]:
    """Every import of `file`, inside functions and type-checking blocks too; relative ones made absolute."""
    relative = file.relative_to(root)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), filename=str(relative))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = relative.parts[: len(relative.parts) - node.level] if node.level else ()
            base = ".".join([*package, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield Import(str(relative), node.lineno, room_of(relative), target)


def source_files(root: Path) -> list[Path]:
    """The Python files that the rules are for: the package, the launchers and run.py. Package markers without code count too."""
    return sorted([*(root / "recsys_lab").rglob("*.py"), *(root / "launchers").rglob("*.py"), *root.glob("run.py")])


def broken_rule(found: Import) -> str | None:
    """What `found` breaks, in one line, or None."""
    where, parts = f"{found.file}:{found.line}", found.target.split(".")
    if found.room not in MAY_IMPORT and found.file != "recsys_lab/__init__.py":
        return f"{where}: room {found.room} has no line in MAY_IMPORT; say there what it may import"
    if parts[0] in ("recsys_lab", "launchers"):
        room = parts[0] if parts[0] == "launchers" else target_room(parts)
        allowed = room == found.room or room in MAY_IMPORT.get(found.room, frozenset()) or (found.file, room) in ALSO
        if not allowed:
            return f"{where}: {found.room} must not import {room or 'recsys_lab'} ({found.target})"
        return None
    if parts[0] in ("tests", "experiments"):
        return f"{where}: {found.room} must not import {parts[0]}"
    inner = found.file.removeprefix("recsys_lab/")
    rooms = ONLY_IN.get(parts[0])
    if rooms is not None and found.room not in rooms and inner not in rooms:
        return f"{where}: {found.room} must not import {parts[0]}, only {', '.join(sorted(rooms))} may"
    for banned in NOT_IN.get(found.room, frozenset()):
        if found.target == banned or found.target.startswith(banned + "."):
            return f"{where}: {found.room} must not import {banned}"
    return None


def broken_rules(root: Path) -> list[str]:
    return [line for file in source_files(root) for found in imports_of(root, file) if (line := broken_rule(found))]
