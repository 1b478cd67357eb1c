"""What a test of an answer that is measured once for a machine begins and ends with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def asked_anew_of(answer: Any, variable: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Nothing is known of `answer`, a cached function: not in this process, not in `folder`, and not by the environment's `variable`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv(variable, raising=False)
    answer.cache_clear()
    yield
    answer.cache_clear()
