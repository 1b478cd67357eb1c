"""The keys of a model's class, read from its source: its module, which imports torch, is not imported.

`declared(target)` gives a class with the same name, keys, defaults and facts (`FACTS`) as the target, which cannot be called; `made_of`
gives the target itself. Of each module on the way only those statements run that the keys need: annotations, defaults, dataclasses.
None where that cannot be read, as of a class that a function makes: then the target is imported.
"""

from __future__ import annotations
import __future__ as future

import ast
import dataclasses
import functools
import importlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from hydra.utils import get_object

#: What is kept of a model's class beside the keys of `__init__`: what plans must know before the model is built.
FACTS = ("has_first_order", "begins_first_order", "start_keys", "widths")
#: Packages that no keys need, and that take seconds to import.
HEAVY = frozenset({"torch", "torchrec", "fbgemm_gpu", "lightning", "torchvision", "transformers", "triton"})
MODELS, OURS = "recsys_lab.models", "recsys_lab"
PREFIX = "declared:"  # of the names under which modules of declarations stand in sys.modules
TARGET = "__target__"
#: Statements of a class or a module that bind the names that stand in them, and no others.
PLAIN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass)


class _Unreadable(Exception):
    """The source does not say it in a way that can be read without running it."""


@functools.cache
def declared(target: str) -> type | None:
    """The class at `target`, "module.Class", as its source declares it. None where the source cannot be read so."""
    module, _, name = target.rpartition(".")
    if module in sys.modules:
        return None  # imported already
    try:
        found = _read(module).named(name)
        keys = getattr(found, "__init__", None)
        if not isinstance(found, type) or TARGET not in vars(found) or keys is object.__init__:
            return None
        typing.get_type_hints(keys)
    except (_Unreadable, NameError, TypeError, SyntaxError, OSError, ValueError):
        return None
    return found


def made_of(found: Callable) -> Callable:
    """The class that `found` declares, imported; `found` itself where it is no declaration."""
    return get_object(vars(found)[TARGET]) if isinstance(found, type) and TARGET in vars(found) else found


@functools.cache
def _read(name: str) -> _Source:
    return _Source(name)


class _Source:
    """A module's source, and the namespace of what was needed of it."""

    def __init__(self, name: str):
        self.name, self.begun = name, set[str]()
        self.tree = ast.parse(_file_of(name).read_text(encoding="utf-8"))
        self.space = types.ModuleType(PREFIX + name)
        sys.modules[PREFIX + name] = self.space  # where dataclasses look for the names in their annotations
        self.statements = {name: node for node in self.tree.body for name in _names_of(node)}
        for node in self.tree.body:
            if not isinstance(node, (*PLAIN, ast.Import, ast.ImportFrom)):
                for name in _bound_within(node):
                    self.statements.pop(name, None)  # what it is then depends on what runs
        imported = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        self.flags = sum(getattr(future, alias.name).compiler_flag for node in imported for alias in node.names)

    def named(self, name: str) -> Any:
        """What `name` is in the module."""
        if name not in vars(self.space):
            if name not in self.statements or name in self.begun:
                raise _Unreadable(f"{self.name} has no {name} of its own, or one that needs itself")
            self.begun.add(name)
            self._run(self.statements[name], name)
        return vars(self.space)[name]

    def _run(self, node: ast.stmt, wanted: str) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, wanted)
            return
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            node = self._class(node)
        for name in _needed(node):
            if name in self.statements and name not in _names_of(node):
                self.named(name)
        code = compile(ast.Module([ast.fix_missing_locations(node)], []), f"<{self.name}>", "exec", self.flags, dont_inherit=True)
        try:
            exec(code, vars(self.space))
        except Exception as error:
            raise _Unreadable(str(error)) from error
        made = vars(self.space).get(getattr(node, "name", ""))
        if isinstance(made, type) and not dataclasses.is_dataclass(made):
            made.__module__ = self.name
            setattr(made, TARGET, f"{self.name}.{made.__name__}")

    def _import(self, node: ast.Import | ast.ImportFrom, wanted: str) -> None:
        """Binds `wanted`: of a model's module as it is declared, of another one as it is."""
        alias = next(alias for alias in node.names if wanted in _names_of(ast.Import([alias])))
        if isinstance(node, ast.Import):
            vars(self.space)[wanted] = _light(alias.name if alias.asname else wanted)
            return
        module = _absolute(self.name, node)
        if self._is_read(module):
            value = _read(module).named(alias.name)
        else:
            within = _light(module)
            value = getattr(within, alias.name) if hasattr(within, alias.name) else _light(f"{module}.{alias.name}")
        vars(self.space)[wanted] = value

    def _is_read(self, module: str) -> bool:
        """Whether a module is read and not imported: models, and what the user has beside them."""
        top = module.partition(".")[0]
        if top == OURS:
            return module == MODELS or module.startswith(MODELS + ".")
        if module in sys.modules or top in sys.stdlib_module_names or top in HEAVY:
            return False
        return top == self.name.partition(".")[0] or "site-packages" not in _file_of(module).parts

    def _class(self, node: ast.ClassDef) -> ast.ClassDef:
        """A class of a model's kind: its bases, its facts, and `__init__` with its keys alone."""
        if node.keywords:
            raise _Unreadable(f"{self.name}.{node.name} has a metaclass")
        bases = [base for base in node.bases if not self._is_heavy(base)]
        body: list[ast.stmt] = []
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                if part.decorator_list:
                    raise _Unreadable(f"{self.name}.{node.name}.__init__ is decorated")
                body.append(_keys_of(part))
            elif not isinstance(part, PLAIN):
                raise _Unreadable(f"{self.name}.{node.name} has a {type(part).__name__}, which may hold anything")
            elif set(_names_of(part)) & set(FACTS):
                body.append(part)
        return ast.ClassDef(node.name, bases, [], body or [ast.Pass()], [])

    def _is_heavy(self, base: ast.expr) -> bool:
        """Whether it comes from a package that no keys need, such as `nn.Module`."""
        first = next((part.id for part in ast.walk(base) if isinstance(part, ast.Name)), "")
        node = self.statements.get(first)
        if isinstance(node, ast.ImportFrom):
            return (node.module or "").partition(".")[0] in HEAVY
        return isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in HEAVY for alias in node.names)


def _keys_of(node: ast.FunctionDef) -> ast.FunctionDef:
    """`node` with its keyword-only parameters as they are. The others lose what they declare, and the body goes."""
    given = node.args
    if given.vararg or given.kwarg:
        raise _Unreadable("keys that are not named")
    plain = [[ast.arg(one.arg) for one in ones] for ones in (given.posonlyargs, given.args)]
    none: list[ast.expr] = [ast.Constant(None) for _ in given.defaults]
    arguments = ast.arguments(plain[0], plain[1], None, given.kwonlyargs, given.kw_defaults, None, none)
    body = ast.parse("raise TypeError('a declaration builds no model')").body
    return ast.FunctionDef("__init__", arguments, body, [])


def _light(name: str) -> Any:
    if name.partition(".")[0] in HEAVY:
        raise _Unreadable(f"{name} is needed")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _Unreadable(str(error)) from error


def _absolute(name: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = [*name.split("."), "__init__"] if _file_of(name).stem == "__init__" else name.split(".")
    package = parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


@functools.cache
def _file_of(name: str) -> Path:
    """The source of a module, found without importing the packages that it is in."""
    path: Any = None
    spec: Any = None
    parts = name.split(".")
    for place in range(len(parts)):
        try:
            spec = PathFinder.find_spec(".".join(parts[: place + 1]), path)
        except KeyError as error:
            raise _Unreadable(f"{name} is in a folder without __init__.py, in a package that is not imported") from error
        if spec is None:
            raise _Unreadable(f"no module {name}")
        path = spec.submodule_search_locations
    if not spec.origin or not spec.origin.endswith(".py"):
        raise _Unreadable(f"{name} has no source")
    return Path(spec.origin)


def _names_of(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ClassDef | ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (name for target in node.targets for name in _bound_within(target))  # of `a, b = c` too
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _bound_within(node: ast.AST) -> Iterator[str]:
    """The names that it gives a value anywhere inside."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef):
            yield from _names_of(part)


def _needed(node: ast.AST) -> Iterable[str]:
    """The names that it reads, annotations' too."""
    return dict.fromkeys(part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load))
