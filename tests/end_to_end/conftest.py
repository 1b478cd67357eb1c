from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.lines import SMALL, Done, line


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Path, Done]:
    """One small run of the main line on four ranks, which several tests look at."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = line("model=dcn", "sharder=torchrec", "cluster=h100x64", *SMALL, f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return folder, done
