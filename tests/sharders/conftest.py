"""Planners answer here each time: an answer that is kept would prove nothing of a search that a test changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recsys_lab.base import answers
from recsys_lab.sharders.torchrec import planner


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(function: Any, question: Any, _: tuple[str, ...]) -> Any:
        return answers.answered(function, "", json.dumps(question), [])

    monkeypatch.setattr(planner, "answer", answer)
