"""Python on the pages: every block is Python, and names of recsys_lab that it uses are there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import recsys_lab
from tests.docs.pages import PAGES, ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [(page, number, code) for page in PAGES for number, code in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")))]


def test_pages_have_python() -> None:
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize(("page", "number", "code"), BLOCKS, ids=[f"{page.relative_to(ROOT)}:{number}" for page, number, _ in BLOCKS])
def test_what_a_block_takes_of_recsys_lab_is_there(page: Path, number: int, code: str) -> None:
    for module, name in _taken(ast.parse(code)):
        there = hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None
        assert there, f"{page}: {module} has no {name}"


def _taken(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of each import from recsys_lab, and of each `recsys_lab.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == recsys_lab.__name__:
            yield from ((str(node.module), alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == recsys_lab.__name__:
            yield recsys_lab.__name__, node.attr
