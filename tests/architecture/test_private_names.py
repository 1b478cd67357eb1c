"""Private names of torch and TorchRec stand in few files, each of which says for which versions: an update is checked there first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.imports import source_files

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("torch", "torchrec", "fbgemm_gpu")
#: The files that may use private names. Kernels and models may not import the executor's.
PRIVATE_FILES = {"recsys_lab/executor/torch_private.py", "recsys_lab/kernels/torch_private.py"}
#: By file: names that stay there, and why.
ALLOWED = {
    "recsys_lab/sharders/torchrec/search.py": {"_optimizer_classes"},  # TorchRec's planner reads it; sharders may not import the executor
    "launchers/ray_ranks.py": {"_base_exc"},  # Ray's
}
#: Of Python's own: no library's.
OF_PYTHON = {"_exit", "_replace", "_fields_"}
#: What subclasses of TorchRec's Awaitable are asked to define.
TO_DEFINE = {"_wait_impl"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(tree: ast.AST) -> set[str]:
    """Private names that a file defines: functions, attributes of `self`, fields, class variables."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            names |= {node.attr} if node.value.id in ("self", "cls") else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Dict):  # self.__dict__ |= {"_name": ...}
            names |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            names.add(node.slice.value)  # self.__dict__["_name"]
    return {name for name in names if is_private(name)}


def uses_libraries(tree: ast.AST) -> bool:
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return any(module.split(".")[0] in LIBRARIES for module in modules)


def private_names(tree: ast.AST, own: set[str], known: set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of each use of a library's private name: as an attribute, in getattr, by import, or defined over the library's own.

    `own`: private names of ours. `known`: those that the private files use, which are a library's whatever else has them.
    """
    here = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr not in (own | here if of_self else (own | here) - known):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr", "hasattr"):
            names = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from ((node.lineno, name) for name in names if is_private(name) and name not in here)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            base = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            for target in (f"{base}.{alias.name}" if base else alias.name for alias in node.names):
                if target.split(".")[0] in LIBRARIES and any(is_private(part) for part in target.split(".")):
                    yield node.lineno, target
        elif isinstance(node, ast.ClassDef):
            yield from ((one.lineno, one.name) for one in node.body if isinstance(one, ast.FunctionDef) and one.name in known)


def in_files(root: Path) -> list[str]:
    """FILE:LINE name, where a library's private name stands outside of the files for them."""
    trees = {str(file.relative_to(root)): ast.parse(file.read_text(encoding="utf-8")) for file in source_files(root)}
    known = {name for path in PRIVATE_FILES & set(trees) for _, name in private_names(trees[path], set(), set())}
    own = set().union(*(own_names(tree) for path, tree in trees.items() if path not in PRIVATE_FILES))
    lines = []
    for path, tree in trees.items():
        if path in PRIVATE_FILES or not uses_libraries(tree):
            continue
        allowed = OF_PYTHON | TO_DEFINE | ALLOWED.get(path, set())
        lines += [f"{path}:{line} {name}" for line, name in private_names(tree, own, known) if name not in allowed]
    return lines


def test_private_names_of_torch_and_torchrec_stand_in_the_files_for_them() -> None:
    assert in_files(ROOT) == []


def test_the_files_for_them_name_their_versions_and_use_some() -> None:
    for path in PRIVATE_FILES:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert "torch 2." in (ast.get_docstring(tree) or ""), path
        assert list(private_names(tree, set(), set())), path


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\ntorch._foreach_add_([], [])", "_foreach_add_"),
        ("import torch\ndef f(group):\n    return group._get_backend(0)", "_get_backend"),
        ("from torchrec.distributed import types\ndef f(x):\n    return getattr(x, '_pg', None)", "_pg"),
        ("from torch.distributed._shard.sharded_tensor import ShardedTensor", "torch.distributed._shard.sharded_tensor.ShardedTensor"),
        ("import torch\nclass Part(torch.nn.Module):\n    def f(self):\n        return self._forward_hooks", "_forward_hooks"),
    ],
)
def test_a_private_name_elsewhere_is_found(tmp_path: Path, source: str, name: str) -> None:
    path = tmp_path / "recsys_lab" / "executor" / "novel.py"
    path.parent.mkdir(parents=True)
    path.write_text(source + "\n")
    assert [line.split()[1] for line in in_files(tmp_path)] == [name]


OURS = """
import torch
class A:
    def __init__(self):
        self._x = 1
    def _f(self, other):
        return other._x + other._f(self)
"""


def test_private_names_of_ours_are_let_be(tmp_path: Path) -> None:
    path = tmp_path / "recsys_lab" / "executor" / "novel.py"
    path.parent.mkdir(parents=True)
    path.write_text(OURS)
    assert in_files(tmp_path) == []
