"""What a docstring leaves out: arguments and fields without a word, results and errors that it does not name."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef
ENTRY = re.compile(r"    ((?:\w+, )*\w+): \S")
#: A function with these words leaves its keyword-only keys to the comments of its YAML.
OF_YAML = re.compile(r"`conf/[\w/]+\.yaml` explains them")


def missing_in(path: str, name: str) -> list[str]:
    """`missing` of the class, function or method `name` (`Class.method`) of the file `path`."""
    return missing((ROOT / path).read_text(encoding="utf-8"), name)


def missing(source: str, name: str) -> list[str]:
    """What the docstring of `name` should name and does not, in words. A field may have a comment beside it instead."""
    node = _definition(source, name)
    text = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        constructor = next((n for n in node.body if isinstance(n, Function) and n.name == "__init__"), None)
        takes = [] if constructor is None or "Args:" not in text else _arguments(constructor)
        has, said = ({}, set()) if takes else _fields(node, source.splitlines())
        return [*_unnamed("Args", takes, text), *_unnamed("Attributes", has, text, said)]
    keys = {one.arg for one in node.args.kwonlyargs} if OF_YAML.search(text) else set()
    found = _unnamed("Args", _arguments(node), text, keys)
    if node.returns is not None and ast.unparse(node.returns) != "None" and "Returns:\n" not in text:
        found.append("no Returns")
    if "Raises:\n" not in text and any(map(_raises_ours, ast.walk(node))):
        found.append("no Raises")
    return found


def _definition(source: str, name: str) -> ast.ClassDef | Function:
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        node = next(n for n in ast.iter_child_nodes(node) if isinstance(n, ast.ClassDef | Function) and n.name == part)
    assert isinstance(node, ast.ClassDef | Function)
    return node


def _unnamed(section: str, names: Collection[str], text: str, elsewhere: Collection[str] = ()) -> list[str]:
    """Of `names` those that the section lacks, unless said `elsewhere`; and what the section has beyond them."""
    _, header, rest = text.partition(f"{section}:\n")
    entries = rest.split("\n\n")[0].splitlines() if header else []
    named = {name for row in entries if (entry := ENTRY.match(row)) for name in entry[1].split(", ")}
    wrong = [f"{name} is not in {section}" for name in names if name not in named and name not in elsewhere]
    return wrong + [f"{section} has {name}, which is not there" for name in sorted(named - set(names)) if names]


def _arguments(node: Function) -> list[str]:
    given = node.args
    starred = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs, *starred] if one.arg not in ("self", "cls")]


def _fields(node: ast.ClassDef, lines: list[str]) -> tuple[dict[str, None], set[str]]:
    """Public fields in order, and those with a comment beside them."""
    found: dict[str, None] = {}
    said = set()
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            found[one.target.id] = None
            if any("  # " in line for line in lines[one.lineno - 1 : one.end_lineno]):
                said.add(one.target.id)
    return found, said


def _raises_ours(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) in ("UserError", "PlanDoesNotFit")
