"""Command lines of `python -m recsys_lab`: argparse, whose complaints become our one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from recsys_lab.errors import UserError


class Parser(argparse.ArgumentParser):
    """Raises UserError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message, where=self.prog, remedy=f"see {self.prog} --help")


def parser(command: str, about: str) -> Parser:
    """A parser for `python -m recsys_lab COMMAND`."""
    return Parser(prog=f"python -m recsys_lab {command}", description=about)
