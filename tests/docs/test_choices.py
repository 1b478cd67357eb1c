"""Every command and every choice of every group stands in docs/commands.md, and nothing else does."""

from __future__ import annotations

import re

import pytest

from recsys_lab.__main__ import COMMANDS
from recsys_lab.config.yaml_comments import GROUPS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
RUNS, COMMAND_ROWS = PAGE.split("## Other commands")
CODE = re.compile(r"`([\w/]+)`")
#: What a row names beside choices: an example, and what is made of a profile.
BESIDE = {"flexshard/table5", "torchrec_pipelined"}


def words_of(group: str) -> set[str]:
    (row,) = re.findall(rf"^\| \[`{group}`\]\(\.\./conf/{group}\) \| (.+) \|$", RUNS, re.MULTILINE)
    named = set(CODE.findall(row)) - BESIDE
    for first, last in re.findall(r"`(\w+\d)` to `(\w+\d)`", row):
        named |= {f"{first[:-1]}{number}" for number in range(int(first[-1]), int(last[-1]) + 1)}
    return named


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_its_choices(group: str) -> None:
    assert words_of(group) == {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}


def test_every_command_is_there() -> None:
    cells = re.findall(r"^\| (`.+?) \|", COMMAND_ROWS, re.MULTILINE)
    assert {word for cell in cells for word in CODE.findall(cell)} == set(COMMANDS)
