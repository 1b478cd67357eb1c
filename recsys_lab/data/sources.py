"""Which files hold which split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recsys_lab.base.files import NOTHING, check_name, path_of, what_is
from recsys_lab.data.sampled import digest_of_file
from recsys_lab.errors import UserError

MOST_NAMES_SHOWN = 12


@dataclass(frozen=True)
class Splits:
    """A file a split, relative to data.root. null: found by its customary name."""

    train: str | None = None
    validation: str | None = None
    test: str | None = None


def as_splits(given: Splits | Mapping | None) -> Splits:
    """`Splits` from what the config holds: the dataclass itself, or a mapping with its fields."""
    if given is None or isinstance(given, Splits):
        return given or Splits()
    unknown = sorted(set(given) - {"train", "validation", "test"})
    if unknown:
        raise UserError("no such split", where="data.splits", given=unknown[0], allowed="train, validation, test")
    return Splits(**{str(k): given[k] for k in given})


def check_root(root: str | None) -> Path:
    """The data folder. UserError if it was not given, does not exist, or cannot be listed."""
    if not root:
        raise UserError("the data folder is needed", where="data.root", given="nothing", remedy="set data.root=DIR")
    folder = path_of(root, "data.root")
    try:
        if not folder.is_dir():
            raise UserError("not a folder", where="data.root", given=root, remedy="set data.root=DIR to the folder with the data files")
        next(folder.iterdir(), None)
    except OSError as error:
        raise UserError(f"the folder cannot be read: {error.strerror}", where="data.root", given=root) from None
    return folder


def named_file(root: Path, name: str, key: str) -> Path:
    """The file that the config key `key` names. Relative names are relative to `root`. UserError if it is none that can be read."""
    path = root / path_of(name, key)
    if what_is(path) == NOTHING:
        raise UserError("no such file", where=key, given=path, remedy=f"{root} is {_found(root)}")
    return _checked(path, key)


def find_file(root: Path, names: Sequence[str]) -> Path | None:
    """The first of `names`, each also with .gz, that is in `root`. UserError where there is none, but something else of that name."""
    there = {path: kind for name in names for path in (root / name, root / f"{name}.gz") if (kind := what_is(path)) != NOTHING}
    files = [path for path, kind in there.items() if kind is None]
    return next(iter(files), None) if files or not there else _checked(next(iter(there)), root)


def names_there(root: Path, names: Sequence[str]) -> list[str]:
    """Those of `names`, each also with .gz, that are files in `root`: the first one is what `find_file` takes."""
    return [file_name for name in names for file_name in (name, f"{name}.gz") if what_is(root / file_name) is None]


def only_file(root: Path, name: str | None, suffixes: Sequence[str], key: str) -> Path:
    """The file `name` of `root`. Without a name it is the only one there that ends in one of `suffixes`, .gz or not.

    Raises UserError, which names the config key `key`, where there is none, or more than one.
    """
    if name:
        return named_file(root, name, key)
    candidates = sorted(p for p in root.iterdir() if p.name.lower().removesuffix(".gz").endswith(tuple(suffixes)))
    if files := [path for path in candidates if what_is(path) is None]:
        candidates = files
    if len(candidates) != 1:
        names = ", ".join(path.name for path in candidates)
        what, given = ("several files it could be", names) if candidates else ("no file to read", _found(root))
        raise UserError(
            what, where=root, given=given, allowed=f"one that ends in {', '.join(suffixes)} [.gz]", remedy=f"name it: {key}=FILE"
        )
    return _checked(candidates[0], root)


def _checked(path: Path, where: object) -> Path:
    """`path`, a file with a name that can be shown. UserError for anything else."""
    if (kind := what_is(path)) is not None:
        raise UserError("not a file that can be read", where=where, given=f"{path}: {kind}", remedy="name a file")
    check_name(path, where)
    return path


def missing_file(root: Path, names: Sequence[str], split: str) -> UserError:
    """Says which names were looked for and what the folder has."""
    return UserError(
        f"no {split} file",
        where=root,
        given=_found(root),
        allowed=", ".join(f"{n}[.gz]" for n in names),
        remedy=f"or name it: data.splits.{split}=FILE",
    )


def source_identity(path: Path) -> list:
    """What tells one state of a file from another without reading all of it. UserError where it cannot be read."""
    try:
        stat = path.stat()
        return [str(path.resolve()), stat.st_size, stat.st_mtime_ns, digest_of_file(path)]
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot be read: {error.strerror or error}", where=path, remedy="check the file and its permissions")


def _found(root: Path) -> str:
    names = sorted(p.name for p in root.iterdir())
    shown = ", ".join(names[:MOST_NAMES_SHOWN]) + (f" and {len(names) - MOST_NAMES_SHOWN} more" if len(names) > MOST_NAMES_SHOWN else "")
    return f"a folder with {shown}" if names else "an empty folder"
