"""What the source of a model says of its keys, read from small modules that are never imported."""

from __future__ import annotations

import ast
import collections.abc
import fractions
import inspect
import itertools
import math
import os
import sys
import textwrap
import types
import xml.dom
import xml.etree
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from recsys_lab.base.ranges import Range
from recsys_lab.base.schema import hints_of
from recsys_lab.config.declared import HEAVY, PREFIX, TARGET, _absolute, _file_of, _read, _Unreadable, declared, made_of
from recsys_lab.config.schema import schema_of

#: Each test reads modules of names of its own: what was read is kept.
NUMBERS = itertools.count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes modules (name=source, `__` for a dot), and gives the name of the package that holds them. None may be imported."""
    before = set(sys.modules)

    def write(**sources: str) -> str:
        name = f"read{next(NUMBERS)}"
        folder = tmp_path / name
        for module, source in {"__init__": "", **sources}.items():
            path = folder.joinpath(*module.replace("____init__", "__INIT").split("__") if module != "__init__" else [module])
            path = path.with_name(path.name.replace("INIT", "__init__") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source).replace("PACKAGE", name))
        return name

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    more = set(sys.modules) - before
    for name in [name for name in more if name.startswith((PREFIX, "read"))]:
        del sys.modules[name]
    assert not [name for name in more if name.startswith("read")]


def keys_of(kind: Any) -> dict[str, Any]:
    """The defaults of the keys of a class."""
    return {name: one.default for name, one in inspect.signature(kind).parameters.items() if one.kind is one.KEYWORD_ONLY}


MODEL = """
    from __future__ import annotations

    import torch
    from torch import nn, Tensor
    from dataclasses import dataclass, field
    from typing import Annotated
    from recsys_lab.base.ranges import Count, Range

    SIZE = 16
    LAYERS = (SIZE, SIZE // 2)
    print("this is not run")
    raise SystemExit

    @dataclass(frozen=True)
    class Part:
        depth: Count = 2

    class Base(nn.Module):
        has_first_order = False
        hidden = SIZE
        other = torch.zeros(3)

        def __init__(self, tables: Tensor, extra: Tensor = torch.zeros(1), /, more: Tensor = None, *, width: Count = SIZE,
                     share: Annotated[float, Range(0, 1)] = 0.5, part: Part = Part(), layers: tuple = LAYERS, needed: int):
            super().__init__()
            self.weights = torch.zeros(width)

        def forward(self, x: Tensor) -> Tensor:
            return x

        async def later(self): ...

        class Inner: ...

        pass

    class Derived(Base):
        has_first_order, begins_first_order = True, True
        begins_first_order = SIZE == 16

        @staticmethod
        def start_keys() -> tuple:
            return ("linear",)

        def widths(self):
            return LAYERS
    """


def test_keys_defaults_types_and_facts_are_read(package: Callable[..., str]) -> None:
    name = package(model=MODEL)
    base = declared(f"{name}.model.Base")
    assert base is not None and declared(f"{name}.model.Base") is base
    part = base.__init__.__kwdefaults__["part"]
    assert keys_of(base) == {"width": 16, "share": 0.5, "part": part, "layers": (16, 8), "needed": inspect.Parameter.empty}
    assert hints_of(base.__init__)["share"].__metadata__ == (Range(0, 1),) and hints_of(base.__init__)["part"].__name__ == "Part"
    assert part.depth == 2
    assert list(inspect.signature(base).parameters)[:3] == ["tables", "extra", "more"]
    assert (base.__module__, base.__qualname__, vars(base)[TARGET]) == (f"{name}.model", "Base", f"{name}.model.Base")
    assert base.has_first_order is False and not {"hidden", "other", "forward"} & set(vars(base))
    assert base.__mro__ == (base, object)
    with pytest.raises(TypeError, match="a declaration builds no model"):
        base(1, width=2, needed=3)
    assert [field.name for field in fields(schema_of(base))] == ["width", "share", "part", "layers", "needed"]


def test_a_derived_class_has_the_keys_of_its_base_and_facts_of_its_own(package: Callable[..., str]) -> None:
    name = package(model=MODEL)
    derived, base = declared(f"{name}.model.Derived"), declared(f"{name}.model.Base")
    assert derived is not None and base is not None and derived.__bases__ == (base,) and keys_of(derived) == keys_of(base)
    facts: Any = derived
    assert (facts.has_first_order, facts.begins_first_order, facts.start_keys(), facts.widths(None)) == (True, True, ("linear",), (16, 8))
    assert vars(derived)[TARGET] == f"{name}.model.Derived"


def test_a_dataclass_of_options_is_itself_and_no_declaration(package: Callable[..., str]) -> None:
    name = package(model=MODEL)
    assert declared(f"{name}.model.Part") is None
    part = _read(f"{name}.model").named("Part")
    assert TARGET not in vars(part) and part(3).depth == 3


def test_what_other_modules_of_the_package_declare_is_read_too(package: Callable[..., str]) -> None:
    name = package(
        base="import torch\nclass Base(torch.nn.Module):\n    def __init__(self, *, width: int = 4): ...\n",
        inner__deep="from ..base import Base\nfrom .. import base as other\nfrom .beside import TWO\n"
        "class Deep(Base):\n    widths = TWO\nclass Named(other.Base): ...\n",
        inner__beside="import torch\nTWO = 2\nx = torch.nope\n",
        inner____init__="from .deep import Deep as Renamed\n",
        absolute="from PACKAGE.inner.deep import Deep\nclass Last(Deep):\n    def __init__(self, *, width: int = 5): ...\n",
    )
    last, deep = declared(f"{name}.absolute.Last"), declared(f"{name}.inner.deep.Deep")
    base = declared(f"{name}.base.Base")
    assert last is not None and deep is not None and last.__mro__ == (last, deep, base, object)
    assert keys_of(last) == {"width": 5} and keys_of(deep) == {"width": 4} and deep.widths == 2  # type: ignore[attr-defined]
    assert declared(f"{name}.inner.Renamed") is deep


def test_annotations_are_text_only_where_the_module_says_so(package: Callable[..., str]) -> None:
    source = "class Model:\n    def __init__(self, *, width: int = 1): ..."
    name = package(plain=source, future=f"from __future__ import annotations\n{source}")
    hints = [declared(f"{name}.{module}.Model").__init__.__annotations__ for module in ("plain", "future")]  # type: ignore[union-attr,misc]
    assert hints == [{"width": int}, {"width": "int"}]


@pytest.mark.parametrize(("source", "says"), [("A = 1 / 0", "division by zero"), ("import no_such_module as A", "no_such_module")])
def test_why_a_name_cannot_be_read(package: Callable[..., str], source: str, says: str) -> None:
    with pytest.raises(_Unreadable, match=says):
        _read(f"{package(model=source)}.model").named("A")


def test_what_is_light_is_imported(package: Callable[..., str]) -> None:
    """Of the standard library and of this project: whole modules, names of them, and modules within packages."""
    name = package(
        model="""
        import math
        import os.path
        import collections.abc as abc
        import xml.etree as tree
        from xml import dom
        from os import path as p
        class Model:
            def __init__(self, *, a: float = math.pi, b=os.path.join, c=abc.Mapping, d=dom, e=p.sep, f=tree): ...
        """
    )
    model = declared(f"{name}.model.Model")
    wanted = {"a": math.pi, "b": os.path.join, "c": collections.abc.Mapping, "d": xml.dom, "e": os.sep, "f": xml.etree}
    assert model is not None and keys_of(model) == wanted


@pytest.mark.parametrize(
    "source",
    [
        "",  # there is no such name
        "Model = 5",
        "def Model(*, width=1): ...",
        "class Model: ...",  # which declares no keys
        "class Model:\n    def __init__(self, **keys): ...",
        "class Model:\n    def __init__(self, *keys): ...",
        "import functools\nclass Model:\n    @functools.cache\n    def __init__(self, *, width=1): ...",
        "class Model(metaclass=type):\n    def __init__(self, *, width=1): ...",
        "import functools\n@functools.total_ordering\nclass Model:\n    def __init__(self, *, width=1): ...",
        "class Model:\n    def __init__(self, *, width: Nowhere = 1): ...",
        "class Model:\n    def __init__(self, *, width: 'Nowhere' = 1): ...",
        "class Model(Model):\n    def __init__(self, *, width=1): ...",
        "A = B\nB = A\nclass Model:\n    def __init__(self, *, width=A): ...",
        "import torch\nclass Model:\n    def __init__(self, *, width=torch.pi): ...",
        "from torch import pi\nclass Model:\n    def __init__(self, *, width=pi): ...",
        "from math import nothing\nclass Model:\n    def __init__(self, *, width=nothing): ...",
        "import no_such_module\nclass Model:\n    def __init__(self, *, width=no_such_module): ...",
        "class Model:\n    def __init__(self, *, width=1 / 0): ...",
        "class Model:\n    if True:\n        widths = 1\n    def __init__(self, *, width=1): ...",
        "class Model:\n    widths = 1\n    widths += 1\n    def __init__(self, *, width=1): ...",
        "A = 1\nA += 1\nclass Model:\n    def __init__(self, *, width=A): ...",
        "A = 1\nif A:\n    A, B = 2, 3\nclass Model:\n    def __init__(self, *, width=A): ...",
        "import math as A\ntry:\n    import json as A\nfinally: ...\nclass Model:\n    def __init__(self, *, width=A): ...",
        "def a(): ...\nif True:\n    def a(): ...\nclass Model:\n    def __init__(self, *, width=a): ...",
        "class A: ...\nif True:\n    class A: ...\nclass Model:\n    def __init__(self, *, width=A): ...",
        "class Model(:",
        "class Model:\n    def __init__(self, *, width=1): ...\nx = '\0'",
    ],
)
def test_what_cannot_be_read_is_imported_instead(package: Callable[..., str], source: str) -> None:
    name = package(model=source)
    assert declared(f"{name}.model.Model") is None
    assert declared(f"{name}.nowhere.Model") is None and declared(f"no_such_{name}.Model") is None and declared("Model") is None


def test_a_module_that_is_imported_already_is_not_read(package: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = package(model=MODEL)
    with monkeypatch.context() as here:
        here.setitem(sys.modules, f"{name}.model", types.ModuleType("x"))
        assert declared(f"{name}.model.Base") is None


def test_a_base_is_left_out_where_it_is_of_a_heavy_package_alone(package: Callable[..., str]) -> None:
    name = package(
        model="""
        import torch.nn as nn
        import lightning
        import torch.nn.functional
        import math, torchrec.modules
        from torch import nn as mine
        from torch.nn import Module
        from abc import ABC
        class Light(ABC):
            def __init__(self, *, width=1): ...
        class A(nn.Module, Light): ...
        class B(lightning.LightningModule, Light): ...
        class C(torch.nn.Module, Light): ...
        class D(torchrec.modules.X, Light): ...
        class E(mine.Module, Light): ...
        class F(Module, Light): ...
        """
    )
    light = declared(f"{name}.model.Light")
    assert light is not None and light.__mro__[1].__name__ == "ABC"
    for letter in "ABCDEF":
        one = declared(f"{name}.model.{letter}")
        assert one is not None and one.__bases__ == (light,), letter


@pytest.mark.parametrize(
    ("module", "is_read"),
    [
        ("recsys_lab.models", True),
        ("recsys_lab.models.dlrm", True),
        ("recsys_lab.models_of_others", False),
        ("recsys_lab.base.ranges", False),
        ("recsys_lab", False),
        ("PACKAGE.other", True),
        ("json", False),
        ("json.decoder", False),
        ("numpy.linalg", False),
        ("antigravity", False),
        *((f"{name}.x", False) for name in sorted(HEAVY)),
    ],
)
def test_which_modules_are_read(package: Callable[..., str], module: str, is_read: bool) -> None:
    name = package(model="")
    assert _read(f"{name}.model")._is_read(module.replace("PACKAGE", name)) is is_read


def test_a_users_package_beside_the_model_s_is_read_and_an_installed_one_imported(
    package: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other = package(model=""), package(x="")
    (tmp_path / "site-packages" / "read_installed").mkdir(parents=True)
    (tmp_path / "site-packages" / "read_installed" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    assert _read(f"{name}.model")._is_read(f"{other}.x") and not _read(f"{name}.model")._is_read("read_installed")


@pytest.mark.parametrize(
    ("name", "level", "module", "absolute"),
    [
        ("a.model", 0, "b.c", "b.c"),
        ("PACKAGE.inner.deep", 1, "beside", "PACKAGE.inner.beside"),
        ("PACKAGE.inner.deep", 1, None, "PACKAGE.inner"),
        ("PACKAGE.inner.deep", 2, "base.x", "PACKAGE.base.x"),
        ("PACKAGE.inner.deep", 3, "base", "base"),
        ("PACKAGE.inner", 1, "deep", "PACKAGE.inner.deep"),
        ("PACKAGE.inner", 2, "base", "PACKAGE.base"),
    ],
)
def test_where_a_relative_import_leads(package: Callable[..., str], name: str, level: int, module: str | None, absolute: str) -> None:
    package_name = package(inner__deep="", inner____init__="")
    node = ast.ImportFrom(module, [ast.alias("x")], level)
    assert _absolute(name.replace("PACKAGE", package_name), node) == absolute.replace("PACKAGE", package_name)


def test_where_the_source_of_a_module_is(package: Callable[..., str], tmp_path: Path) -> None:
    name = package(inner__deep="", inner____init__="")
    assert _file_of(f"{name}.inner.deep") == tmp_path / name / "inner" / "deep.py"
    assert _file_of(f"{name}.inner") == tmp_path / name / "inner" / "__init__.py"
    bare = package(inner__deep="class Model:\n    def __init__(self, *, width=1): ...")
    with pytest.raises(_Unreadable, match="__init__.py"):  # Python finds it only once its package is imported
        _file_of(f"{bare}.inner.deep")
    assert declared(f"{bare}.inner.deep.Model") is None
    for none in (f"{name}.nowhere", f"{name}.inner.deep.x", "no_such_package.x", "math", "_datetime"):
        with pytest.raises(_Unreadable):
            _file_of(none)


def test_what_a_declaration_is_made_of() -> None:
    class Declared:
        __target__ = "fractions.Fraction"

    class Derived(Declared): ...

    assert made_of(Declared) is fractions.Fraction
    for itself in (Derived, fractions.Fraction, keys_of):
        assert made_of(itself) is itself
