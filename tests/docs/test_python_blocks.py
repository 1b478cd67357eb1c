"""Python on the pages: every block is Python, and names of recsys_lab that it uses are there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
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


@pytest.mark.long
def test_torchrecs_page_prints_what_it_shows(tmp_path: Path) -> None:
    """Its model, its two plans and their figures, in a process of their own."""
    text = (ROOT / "docs" / "torchrec.md").read_text(encoding="utf-8")
    model, plans = _BLOCK.findall(text)[:2]
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    script = tmp_path / "page.py"
    script.write_text(model + plans)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == shown.split()
