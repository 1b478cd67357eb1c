"""What is said to make no difference is still in the code: a line that has changed must be judged again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LISTED = yaml.safe_load((ROOT / "experiments" / "reliability" / "equivalent.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("one", LISTED, ids=lambda one: f"{one['file']}:{one['function']}")
def test_a_mutation_that_makes_no_difference_is_of_a_line_that_is_there(one: dict[str, str]) -> None:
    assert list(one) == ["file", "function", "before", "after", "reason"] and len(one["reason"]) > 20
    text = (ROOT / one["file"]).read_text(encoding="utf-8")
    assert one["before"] in " ".join(text.split()) and one["before"] != one["after"]
    assert not one["function"] or f"def {one['function'].split('.')[-1]}(" in text


def test_none_is_listed_twice() -> None:
    places = [(one["file"], one["function"], one["before"], one["after"]) for one in LISTED]
    assert len(places) == len(set(places))
