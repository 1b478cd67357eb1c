"""Everything that the doctor looks at, in the order of its table."""

from __future__ import annotations

from collections.abc import Callable

from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.doctor import trials, versions
from recsys_lab.doctor.row import BROKEN, Row
from recsys_lab.errors import broken_install

#: (area, name, look): in the order of the table.
LOOKS: tuple[tuple[str, str, Callable[[], Row | list[Row]]], ...] = (
    ("versions", "Python", versions.python_row),
    ("versions", "the triple", versions.triple_rows),
    ("devices", "GPU", trials.gpu_rows),
    ("kernels", "FBGEMM on the CPU", trials.lookup_row),
    ("backends", "gloo", trials.gloo_row),
    ("backends", "nccl", trials.nccl_row),
)


def examine() -> list[Row]:
    """Every row. A look that fails is itself a row: broken, with what it raised."""
    quiet_torchrec()
    rows: list[Row] = []
    for area, name, look in LOOKS:
        try:
            result = look()
        except Exception as error:  # noqa: BLE001 - an install can be broken in any way, and saying so is the doctor's work
            line = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            mistake = broken_install(error)
            remedy = mistake.parts["remedy"] if mistake else f"{versions.REBUILD}; if it stays, report it with the output of --json"
            result = Row(area, name, BROKEN, line, str(remedy))
        rows += result if isinstance(result, list) else [result]
    return rows
