"""What a run's environment says of the rows of its data is held against the data that it is judged on."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_lab.errors import UserError
from recsys_lab.record.environment import check_rows, write_environment


def test_a_model_is_not_judged_on_rows_of_other_values(tmp_path: Path) -> None:
    check_rows(tmp_path, "a")  # nothing is known
    for data in (None, {}, {"own_rows": "a"}):
        write_environment(tmp_path, [], data)
        check_rows(tmp_path, "a")
    with pytest.raises(UserError, match="rows of others.*data.splits.test=FILE"):
        check_rows(tmp_path, "b")
