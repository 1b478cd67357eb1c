"""Where the packages of `make test-ecosystem` are, and what a test says that has none."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def wants(package: str) -> pytest.MarkDecorator:
    """Skips a test where `package` is not installed."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"no {package} here: `make test-ecosystem` installs it and runs this")
