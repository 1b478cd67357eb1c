"""Prepares a table of clicks. Text is read once into Parquet, then column by column into arrays that are read in any order.

Memory holds one column at a time. Rows are stored split after split: train, validation, test, each in the order of its file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path

import numpy as np
import polars as pl
from polars import selectors

from recsys_lab.base.progress import Progress
from recsys_lab.data import hashing
from recsys_lab.data.cache import digest, prepared
from recsys_lab.data.columns import write_row_counts
from recsys_lab.data.sources import source_identity
from recsys_lab.data.table import encode, files
from recsys_lab.data.table.column_checks import ColumnChecks
from recsys_lab.data.table.known import COUNTS_FILE, VALUES_FILE, Known, Wanted
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, measured_access

SPLITS = ("train", "validation", "test")
#: Raise it when other meta data or other rows are written.
LAYOUT = 8
#: What torch's modules call their own, beside what every object has. torch itself takes seconds to import.
_OF_MODULES = """
    T_destination __annotations__ __call__ __contains__ __delitem__ __dict__ __getattr__ __getitem__ __iter__ __len__ __module__
    __setitem__ __setstate__ __weakref__ _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl
    _forward_hooks _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook _load_from_state_dict _load_state_dict_post_hooks
    _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _modules _named_members _non_persistent_buffers_set _parameters
    _register_load_state_dict_pre_hook _register_state_dict_hook _replicate_for_data_parallel _save_to_state_dict _slow_forward
    _state_dict_hooks _state_dict_pre_hooks _version _wrapped_call_impl add_module apply bfloat16 buffers call_super_init children
    clear compile cpu cuda double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule
    half ipu items keys load_state_dict modules mtia named_buffers named_children named_modules named_parameters parameters pop
    register_backward_hook register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module
    register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule
    share_memory state_dict to to_empty train training type update values xpu zero_grad
"""


def prepared_table(
    paths: Mapping[str, Path], wanted: Wanted, cache: Path, named: Collection[str], dropped: Sequence[str], known: Known | None = None
) -> tuple[Path, dict]:
    """The folder of the columns and its meta data. Raises UserError for what cannot be read.

    Remedies say which columns are `named` in the config, and which are `dropped`. `known`: rows and scaling that values have already.
    """
    for path in paths.values():
        files.check_columns(path, files.columns_of(path), _keys(wanted))
    identity = [[split, source_identity(path)] for split, path in paths.items()]

    def prepare(folder: Path) -> dict:
        columns = list(dict.fromkeys(column for _, column in _keys(wanted)))
        text = folder / "text"
        parts = []
        for split, path in paths.items():
            files.check_types(path, _keys(wanted), named, dropped)
            (text / split).mkdir(parents=True)
            parts.append(files.as_parquet(path, columns, text / split))
        meta = _encoded(folder, parts, paths, wanted, known)
        shutil.rmtree(text)
        return meta

    return prepared(cache, "table", [identity, asdict(wanted), known and known.fingerprint, LAYOUT], prepare)


def _keys(wanted: Wanted) -> list[tuple[str, str]]:
    """(config key, column) of every column that is read."""
    split = [("data.split_column", wanted.split_column)] if wanted.split_column else []
    many = [(f"data.{key}", column) for key in ("dense", "categorical") for column in getattr(wanted, key)]
    return [*([("data.label", wanted.label)] if wanted.label else []), *split, *many]


def _encoded(folder: Path, parts: Sequence[Sequence[Path]], paths: Mapping[str, Path], wanted: Wanted, known: Known | None) -> dict:
    sizes = [sum(pl.scan_parquet(part, glob=False).select(pl.len()).collect().item() for part in of_file) for of_file in parts]
    total, ends = sum(sizes), list(accumulate(sizes))

    def where(row: int) -> str:
        file = next(i for i, end in enumerate(ends) if row < end)
        return f"{list(paths.values())[file]}, row {row - (ends[file] - sizes[file]) + 1}"

    def column(name: str) -> pl.Series:
        scans = [pl.scan_parquet(part, glob=False).select(selectors.by_name(name)) for of_file in parts for part in of_file]
        return pl.concat(scans).collect().to_series() if scans else pl.Series(name, [], pl.String)

    labels = encode.labels(column(wanted.label), where) if wanted.label else np.zeros(total, np.uint8)
    if "train" not in paths:
        split = np.repeat(np.array([SPLITS.index(name) for name in paths], np.uint8), sizes)
    elif wanted.split_column:
        split = encode.splits(column(wanted.split_column), where)
    elif len(paths) > 1:
        split = np.repeat(np.array([SPLITS.index(name) for name in paths], np.uint8), sizes)
        if "validation" not in paths:
            split = _divided(split, wanted, 0.0)
    else:
        split = _divided(np.zeros(total, np.uint8), wanted, wanted.test_share)
    order, train = np.argsort(split, kind="stable"), split == 0
    rows = [int((split == code).sum()) for code in range(len(SPLITS))]
    for name, count in zip(SPLITS, rows):
        if count == 0 and (name in paths or (name != "test" and "train" in paths)):
            raise UserError(
                f"the {name} split is empty", where=paths.get(name, next(iter(paths.values()))), given="0 rows", allowed="1 row or more"
            )

    _reserved(folder / "labels.bin", np.uint8, (total,))[:] = labels[order]
    dense = _reserved(folder / "dense.bin", np.float32, (total, len(wanted.dense)))
    ids = _reserved(folder / "ids.bin", np.int32, (total, len(wanted.categorical)))
    counts, checks, scaling, vocabularies, unknown = [], ColumnChecks(), {}, [], {}
    file = next(iter(paths.values())).name
    with Progress(len(wanted.dense) + len(wanted.categorical), f"encoding the columns of {file}", "columns") as bar:
        for position, name in enumerate(wanted.dense):
            values = column(name)
            if known is None:
                checks.look(name, values, labels, number=True)
            scaled, scaling[name] = encode.numbers(values, where, train, wanted.dense_scale, None if known is None else known.scaling[name])
            dense[:, position] = scaled[order]
            bar.update(1)
        for position, name in enumerate(wanted.categorical):
            cells = column(name)
            values = encode.categories(cells)
            if known is None:
                checks.look_for_rounded(name, cells)
                checks.look(name, values, labels)
                checks.compare(name, values, split)
            if wanted.ids == "hashing":
                codes, table_rows = encode.hashed(values, wanted.rows_per_table)
            else:
                codes, vocabulary = encode.vocabulary(values, train, wanted.min_count, None if known is None else known.values(name))
                table_rows = len(vocabulary) + encode.RARE + 1
                vocabularies.append(vocabulary.with_columns(column=pl.lit(name)))
                unknown[name] = int((codes[~train] == encode.RARE).sum())
            ids[:, position] = codes[order]
            counts.append(np.bincount(codes[train], minlength=table_rows))
            bar.update(1)
    names, detail = feature_names(wanted.categorical), f"{rows[0]:,} samples of {file}"
    if known is not None and not rows[0]:
        access = known.access
        shutil.copyfile(known.folder / COUNTS_FILE, folder / COUNTS_FILE)
    else:
        access = AccessStatistics({n: measured_access(n, c, rows[0], detail) for n, c in zip(names, counts)}).to_json()
        write_row_counts(folder, counts)
    if vocabularies:
        pl.concat(vocabularies).write_parquet(folder / VALUES_FILE)
    return {
        "rows": dict(zip(SPLITS, rows)),
        "table_rows": [len(c) for c in counts],
        "column_checks": checks.columns,
        "access": access,
        "scaling": scaling,
        "unknown": unknown,
        "fingerprint": digest(
            [[_sha256(path) for path in paths.values()], list(paths), asdict(wanted), *([known.fingerprint] if known else [])]
        ),
    }


def _divided(split: np.ndarray, wanted: Wanted, test_share: float) -> np.ndarray:
    """Rows of train given to validation and test: the last ones, or drawn by a hash of their number."""
    split, rows = split.copy(), np.flatnonzero(split == 0)
    validation, test = round(len(rows) * wanted.validation_share), round(len(rows) * test_share)
    if wanted.held_out == "random":
        rows = rows[np.argsort(hashing.bits(np.uint64(1), rows), kind="stable")]
    split[rows[len(rows) - validation - test : len(rows) - test]] = 1
    split[rows[len(rows) - test :]] = 2
    return split


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reserved(path: Path, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """A file of its full size, mapped for writing. Its space is allocated first, so a full disk is an error and not a crash."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with path.open("wb") as file:
        if size:
            os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape) if size else np.empty(shape, dtype)


def feature_names(columns: Sequence[str]) -> list[str]:
    """Names that a module can have: letters, digits and underscores, none of its own. UserError where two become the same."""
    names = ["".join(c if c.isalnum() or c == "_" else "_" for c in column) for column in columns]
    taken = {*dir(object), *_OF_MODULES.split()}
    names = [f"{name}_" if name in taken else name for name in names]
    if twice := [name for name, columns_of_it in Counter(names).items() if columns_of_it > 1]:
        raise UserError("two columns would have one name", where="data.categorical", given=twice[0], remedy="rename one of them")
    return names
