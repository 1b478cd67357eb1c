"""Plans as files: JSON, written whole or not at all, checked when read."""

from __future__ import annotations

import json
from pathlib import Path

from recsys_lab.base.files import NOTHING, what_is, write_text
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.validate import validate

SCHEMA = 1
REMEDY = "name a plan.json of a run folder"
KEYS = ("schema", "sharder", "hosts", "ranks_per_host", "tables", "placements", "towers")


def save_plan(plan: ShardingPlan, path: Path) -> Path:
    """Write `plan` to `path`. Raises UserError where the folder cannot be written."""
    return write_text(Path(path), json.dumps(plan.to_json(), indent=1) + "\n")


def load_plan(path: Path) -> ShardingPlan:
    """The plan in `path`, valid. Raises UserError where the file is missing, is no plan of this schema, or its shards do not fit."""
    path = Path(path)
    if what_is(path) not in (None, NOTHING):
        raise UserError("cannot read the plan", where=path, given=what_is(path), remedy=REMEDY)
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the plan: {error.strerror}", where=path, remedy=REMEDY) from error
    except (ValueError, RecursionError) as error:  # not JSON, or not text
        raise UserError("the plan is not JSON", where=path, given=error, remedy=REMEDY) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UserError(
            "unknown schema of a plan", where=path, given=data.get("schema") if isinstance(data, dict) else None, allowed=SCHEMA
        )
    if missing := [key for key in KEYS if key not in data]:
        raise UserError("the plan is incomplete", where=path, given=f"no {', '.join(missing)}", remedy=REMEDY)
    check_shape(data, ShardingPlan, path, REMEDY)
    try:
        plan = ShardingPlan.from_json(data)
    except UserError as error:
        of_value = {name: error.parts[name] for name in ("given", "allowed")}
        raise UserError(str(error.parts["what"]), where=f"{path}: {error.parts['where']}", remedy=REMEDY, **of_value) from None
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError("the plan has a field missing, too many or of a wrong type", where=path, given=error, remedy=REMEDY) from error
    validate(plan, where=path)
    return plan
