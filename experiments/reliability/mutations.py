"""Small wrong changes to a file, by cosmic-ray's operators: where they can be made, and the text that one makes.

Not mutated: annotations, which mypy checks, and assertions, which state what cannot be. Of the operators that replace one sign by another
only the nearest is taken (`<` by `<=`, `+` by `-`). Nearly all others end in a TypeError, and would flatter the score.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

SIGNS = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "FloorDiv": "Div", "Mod": "FloorDiv", "Pow": "Mul"}
SIGNS |= {"LShift": "RShift", "RShift": "LShift", "BitOr": "BitAnd", "BitAnd": "BitOr"}
COMPARISONS = {"Eq": "NotEq", "NotEq": "Eq", "Lt": "LtE", "LtE": "Lt", "Gt": "GtE", "GtE": "Gt", "Is": "IsNot", "IsNot": "Is"}
OPERATORS = (
    *(f"ReplaceBinaryOperator_{sign}_{other}" for sign, other in SIGNS.items()),
    *(f"ReplaceComparisonOperator_{sign}_{other}" for sign, other in COMPARISONS.items()),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_Invert"),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "RemoveDecorator", "ZeroIterationForLoop"),
    "ExceptionReplacer",
)
Place = tuple[int, int]  # line, from 1, and column


@dataclass(frozen=True, order=True)
class Mutation:
    """The change number `occurrence` that `operator` can make to a file. `function`: the innermost around it, as Python qualifies it."""

    file: str
    line: int
    operator: str
    occurrence: int
    function: str


@dataclass(frozen=True)
class Change:
    """The lines that a mutation changes, stripped; and the whole text after it."""

    before: str
    after: str
    text: str


def mutations_of(root: Path, file: str) -> list[Mutation]:
    """All that can be made to the file, relative to `root`."""
    text = (root / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    left_out, functions = list(_left_out(tree)), list(_functions(tree))
    nodes = list(ast_nodes(get_ast(text)))
    found = []
    for operator in OPERATORS:
        made = OperatorProvider()[operator]()
        places = [start for node in nodes for start, _ in made.mutation_positions(node)]
        for occurrence, start in enumerate(places):
            if not any(begin <= start < end for begin, end in left_out) and _can_be_made(text, operator, occurrence):
                inside = [name for name, first, last in functions if first <= start[0] <= last]
                found.append(Mutation(file, start[0], operator, occurrence, inside[-1] if inside else ""))
    return sorted(found)


def _can_be_made(text: str, operator: str, occurrence: int) -> bool:
    """cosmic-ray replaces plain names of exceptions, and fails at dotted ones such as yaml.YAMLError."""
    if operator != "ExceptionReplacer":
        return True
    try:
        return mutate_code(text, OperatorProvider()[operator](), occurrence) is not None
    except AttributeError:
        return False


def change_of(root: Path, mutation: Mutation) -> Change:
    text = _text(root / mutation.file)
    mutated = mutate_code(text, OperatorProvider()[mutation.operator](), mutation.occurrence)
    assert mutated is not None and mutated != text, f"{mutation} changes nothing"
    lines = [line for line in difflib.ndiff(text.splitlines(), mutated.splitlines()) if line[:2] in ("- ", "+ ")]
    before, after = (" ".join(line[2:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return Change(" ".join(before.split()), " ".join(after.split()), mutated)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _left_out(tree: ast.AST) -> Iterator[tuple[Place, Place]]:
    """From where to where annotations and assertions stand."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign | ast.arg):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.Assert):
            parts = [node]
        for part in parts:
            if part is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """(qualified name, first and last line of the body) of functions, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node.body[0].lineno, node.end_lineno or 0
            yield from _functions(node, f"{prefix}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)
