"""Ids outside their tables. Refused where a batch is made, before any sharder sends them to a rank or a kernel reads with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recsys_lab.errors import UserError


def check_ids(keys: Sequence[str], lengths: np.ndarray, ids: np.ndarray, table_rows: Mapping[str, int], where: object) -> None:
    """UserError for the first feature with an id outside its table, in [0, rows).

    Args:
        keys: F features, in the order of `ids`.
        lengths: int [F]: how many of the ids each one has.
        ids: int [N].
        table_rows: of each feature that is checked.
        where: the user finds the ids.
    """
    end = 0
    for key, length in zip(keys, lengths):
        start, end = end, end + int(length)
        own = ids[start:end]
        if key not in table_rows or not len(own):
            continue
        least, greatest, rows = int(own.min()), int(own.max()), table_rows[key]
        if least < 0 or greatest >= rows:
            remedy = "number them from 0, or give the table a row more for each id that is to come"
            if least >= 1 and greatest == rows:
                remedy = f"ids from 1 need {rows + 1:,} rows: subtract 1 from each, or give the table a row more"
            given = f"id {least if least < 0 else greatest} of feature {key}, whose table has {rows:,} rows"
            raise UserError("an id is outside its table", where=where, given=given, allowed=f"0 to {rows - 1}", remedy=remedy)
