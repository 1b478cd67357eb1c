"""Some keys of a target, held to what it declares, without the others that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from recsys_lab.base.schema import checked, hints_of, schema_of


def check_some_keys(values: Mapping[str, Any], where: str, target: Any) -> None:
    """Raises UserError for the first of `values` that is not as the parameters of `target`, or its fields, declare."""
    hints = hints_of(schema_of(target))
    checked(dict(values), dataclasses.make_dataclass("Some", [(name, hints[name]) for name in values], kw_only=True), where)
