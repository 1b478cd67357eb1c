"""What several sharders check of their options. Every error names the key under `sharder.planner`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.tables import Table

KEY = "sharder.planner"
NAMED = 8  # tables that an error lists


def check_scheme(where: str, scheme: str, allowed: Sequence[str], problem: str) -> None:
    """Raises UserError, which says the `problem`, if `scheme` is not one of those `allowed`."""
    if scheme not in allowed:
        raise UserError(problem, where=where, given=scheme, allowed=", ".join(allowed), remedy=did_you_mean(scheme, allowed))


def forced_schemes(tables: Sequence[Table], force: Mapping[str, str] | None, allowed: Sequence[str], problem: str) -> dict[str, str]:
    """Table name -> the scheme that `force` (table name or glob -> scheme) gives it. A later entry wins.

    Raises UserError for a scheme that is not `allowed`, which is the `problem`, and for a pattern without a table.
    """
    names, schemes = [table.name for table in tables], {}
    for pattern, scheme in (force or {}).items():
        where = f"{KEY}.force.{pattern}"
        check_scheme(where, scheme, allowed, problem)
        matches = fnmatch.filter(names, pattern)
        if not matches:
            listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            raise UserError("no such table", where=where, given=pattern, allowed=listed, remedy=did_you_mean(pattern, names))
        schemes.update(dict.fromkeys(matches, scheme))
    return schemes
