"""Packages that one choice of the config needs and the base install lacks: declared where the choice is, checked before anything runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from recsys_lab.errors import INSTALLED, OF_EXTRAS, UserError, broken_install

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Package:
    """A package, the extra of ours that installs it, and what a user can choose in place of what needs it; empty: nothing."""

    name: str
    extra: str
    instead: str = ""

    def refusal(self, where: str, given: object) -> UserError:
        remedy = f"pip install {extra(self.extra)}" + (f", or use {self.instead}" if self.instead else "")
        return UserError(f"{self.name} is not installed", where=where, given=given, remedy=remedy)


def extra(name: str) -> str:
    """What pip calls an extra of this package: of the wheel, or of the checkout that the user is in."""
    return f"'recsys_lab[{name}]'" if INSTALLED else f"'.[{name}]'"


def needs(*packages: Package) -> Callable[[F], F]:
    """Declares what a `_target_` imports when it is called.

    Args:
        packages: in the order in which they are asked for.

    Returns:
        A decorator, which leaves the function as it is.
    """

    def declare(function: F) -> F:
        vars(function)["needs"] = packages
        return function

    return declare


def missing(function: Callable[..., Any]) -> Package | None:
    """The first package that `function` needs and that is not there. Nothing is imported."""
    return next((one for one in getattr(function, "needs", ()) if not is_there(one.name)), None)


def is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def check_training() -> None:
    """Raises UserError where a package that every training needs is not there."""
    for name in OF_EXTRAS:
        if not is_there(name) and (mistake := broken_install(ModuleNotFoundError(name=name))) is not None:
            raise mistake
