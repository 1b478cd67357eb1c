"""`python -m recsys_lab run ...`: plans, simulates and trains what its words name, as `python run.py ...` does."""

from __future__ import annotations

import importlib


def main(argv: list[str]) -> int:
    """The exit code. A rank that torchrun started ends here."""
    program = importlib.import_module("run")  # run.py, which no module of the package may know
    code: int = program.main(argv)
    if program.torchrun.is_rank():
        program.torchrun.leave(code)
    return code
