"""Whether the splits of clicks can be judged."""

from __future__ import annotations

import numpy as np

from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError

#: Rows that are read at once. Both classes are mostly there in the first ones.
BLOCK_ROWS = 4096


def check_labels(data: DataSet) -> None:
    """Refuses, before anything is trained, a split of clicks whose quality could not be judged. Raises UserError."""
    for split in ("train", "validation", "test"):
        if split not in data.splits:
            continue
        rows, labels = data.splits[split], set()
        for start in range(0, rows.rows, BLOCK_ROWS):
            labels |= set(rows.read(np.arange(start, min(start + BLOCK_ROWS, rows.rows))).labels.tolist())
            if len(labels) > 1:
                break
        else:
            raise UserError(
                f"split {split} has only label {int(next(iter(labels)))}: AUC is undefined",
                where=f"data.splits.{split}",
                given=f"{rows.rows} rows of one class",
                remedy="give it rows of both classes",
            )
