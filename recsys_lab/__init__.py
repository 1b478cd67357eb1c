"""recsys_lab: declarative experiments on training large recommendation models."""

__version__ = "0.1.0"  # the one place: pyproject.toml reads it
