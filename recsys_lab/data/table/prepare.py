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
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars import selectors

from recsys_lab.base.files import pasted_list
from recsys_lab.base.progress import Progress
from recsys_lab.data import hashing
from recsys_lab.data.cache import digest, prepared
from recsys_lab.data.columns import mapped, write_bag, write_row_counts
from recsys_lab.data.parquet import LIST_SEPARATOR
from recsys_lab.data.parts import Source
from recsys_lab.data.sources import source_identity
from recsys_lab.data.table import encode, files
from recsys_lab.data.table.column_checks import ColumnChecks
from recsys_lab.data.table.known import COUNTS_FILE, VALUES_FILE, Known, Wanted
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, measured_access

SPLITS = ("train", "validation", "test")
#: So many rows have one label by chance alone less often than this: it is taken for no chance.
_LEAST_CHANCE = 1e-3
#: Raise it when other meta data or other rows are written.
LAYOUT = 12
#: Which row of the files each row is, int64, where that is another.
ORDER_FILE = "order.bin"
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
    sources: Mapping[str, Source], wanted: Wanted, cache: Path, named: Collection[str], dropped: Sequence[str], known: Known | None = None
) -> tuple[Path, dict]:
    """The folder of the columns and its meta data. Raises UserError for what cannot be read.

    Remedies say which columns are `named` in the config, and which are `dropped`. `known`: rows and scaling that values have already.
    """
    for source in sources.values():
        files.check_columns(source, files.columns_of(source), _keys(wanted))
    identity = [[split, source.names, *(source_identity(part.path) for part in source.parts)] for split, source in sources.items()]

    def prepare(folder: Path) -> dict:
        columns = list(dict.fromkeys(column for _, column in _keys(wanted)))
        text = folder / "text"
        parts = {}
        for split, source in sources.items():
            of_parquet = [name for name, separator in wanted.lists if separator == LIST_SEPARATOR]
            files.check_types(source, _keys(wanted), named, dropped, of_parquet)
            (text / split).mkdir(parents=True)
            parts[split] = files.as_parquet(source, columns, text / split)
        meta = _encoded(folder, parts, sources, wanted, named, dropped, known)
        shutil.rmtree(text)
        return meta

    return prepared(cache, "table", [identity, asdict(wanted), known and known.fingerprint, LAYOUT], prepare)


def _keys(wanted: Wanted) -> list[tuple[str, str]]:
    """(config key, column) of every column that is read."""
    split = [("data.split_column", wanted.split_column)] if wanted.split_column else []
    many = [(f"data.{key}", column) for key in ("dense", "categorical") for column in getattr(wanted, key)]
    return [*([("data.label", wanted.label)] if wanted.label else []), *split, *many]


#: A part of a table, and the Parquet files with its rows.
Parts = Sequence[tuple[Path, Sequence[Path]]]


def _encoded(
    folder: Path,
    parts: Mapping[str, Parts],
    sources: Mapping[str, Source],
    wanted: Wanted,
    named: Collection[str],
    dropped: Sequence[str],
    known: Known | None,
) -> dict:
    if unlabelled := _unlabelled(parts, wanted):
        parts = {split: of_split for split, of_split in parts.items() if split != "test"}
    files_of = [one for of_split in parts.values() for one in of_split]
    of_parts = [sum(pl.scan_parquet(made, glob=False).select(pl.len()).collect().item() for made in whole) for _, whole in files_of]
    total, ends = sum(of_parts), list(accumulate(of_parts))
    parts_before = list(accumulate((len(of_split) for of_split in parts.values()), initial=0))
    sizes = [sum(of_parts[first:last]) for first, last in pairwise(parts_before)]

    def where(row: int) -> str:
        part = next(i for i, end in enumerate(ends) if row < end)
        return f"{files_of[part][0]}, row {row - (ends[part] - of_parts[part]) + 1}"

    def column(name: str) -> pl.Series:
        scans = [pl.scan_parquet(made, glob=False).select(selectors.by_name(name)) for _, whole in files_of for made in whole]
        return pl.concat(scans).collect().to_series() if scans else pl.Series(name, [], pl.String)

    labels = encode.labels(column(wanted.label), where) if wanted.label else np.zeros(total, np.uint8)
    if "train" not in parts:
        split = np.repeat(np.array([SPLITS.index(name) for name in parts], np.uint8), sizes)
    elif wanted.split_column:
        split = encode.splits(column(wanted.split_column), where)
    elif len(parts) > 1:
        split = np.repeat(np.array([SPLITS.index(name) for name in parts], np.uint8), sizes)
        if "validation" not in parts:
            split = _divided(split, wanted, 0.0 if "test" in parts else wanted.test_share)
    else:
        split = _divided(np.zeros(total, np.uint8), wanted, wanted.test_share)
    order, train = np.argsort(split, kind="stable"), split == 0
    rows = [int((split == code).sum()) for code in range(len(SPLITS))]
    for name, count in zip(SPLITS, rows):
        if count == 0 and (name in parts or (name != "test" and "train" in parts)):
            where_empty = sources.get(name, next(iter(sources.values()))).path
            raise UserError(f"the {name} split is empty", where=where_empty, given="0 rows", allowed="1 row or more")
    if "validation" not in parts and "train" in parts and not wanted.split_column and wanted.held_out == "last":
        _refuse_sorted(labels, split, sources["train"].path)

    if (np.diff(order) < 0).any():
        _reserved(folder / ORDER_FILE, np.int64, (total,))[:] = order
    _reserved(folder / "labels.bin", np.uint8, (total,))[:] = labels[order]
    dense = _reserved(folder / "dense.bin", np.float32, (total, len(wanted.dense)))
    ids = _reserved(folder / "ids.bin", np.int32, (total, len(wanted.categorical)))
    counts, checks, scaling, vocabularies, unknown = [], ColumnChecks(), {}, [], {}
    file, lists = next(iter(sources.values())).name, dict(wanted.lists)
    with Progress(len(wanted.dense) + len(wanted.categorical), f"encoding the columns of {file}", "columns") as bar:
        for position, name in enumerate(wanted.dense):
            values = column(name)
            if known is None:
                checks.look(name, values, labels, number=True)
            before = None if known is None else known.scaling[name]
            decimal = dict(wanted.decimals).get(name, "")
            scaled, scaling[name] = encode.numbers(values, where, train, wanted.scale_of(name), before, decimal)
            dense[:, position] = scaled[order]
            bar.update(1)
        for position, name in enumerate(wanted.categorical):
            cells = column(name)
            if name in lists:
                values, lengths = encode.bags(cells, lists[name])
            else:
                values, lengths = encode.categories(cells), None
            trains = train if lengths is None else np.repeat(train, lengths)
            if known is None and lengths is None:
                checks.look_for_rounded(name, cells)
                if name in checks.columns["rounded"] and name not in named:
                    raise _rounded(name, cells, dropped, next(iter(sources.values())).path)
                checks.look(name, values, labels)
                checks.compare(name, values, split)
            if wanted.ids == "hashing":
                codes, table_rows = encode.hashed(values, wanted.rows_per_table)
            else:
                codes, vocabulary = encode.vocabulary(values, trains, wanted.min_count, None if known is None else known.values(name))
                table_rows = len(vocabulary) + encode.RARE + 1
                vocabularies.append(vocabulary.with_columns(column=pl.lit(name)))
                unknown[name] = int((codes[~trains] == encode.RARE).sum())
            if lengths is None:
                ids[:, position] = codes[order]
            else:
                write_bag(folder, position, codes, lengths, order)
            counts.append(np.bincount(codes[trains], minlength=table_rows))
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
        "file_rows": dict(zip(parts, sizes)),
        "table_rows": [len(c) for c in counts],
        "column_checks": checks.columns,
        "separators": checks.separators,
        "decimals": checks.decimals,
        "access": access,
        "scaling": scaling,
        "unknown": unknown,
        "unlabelled": unlabelled,
        "fingerprint": digest(
            [
                [_sha256(part.path) for source in sources.values() for part in source.parts],
                [[split, source.names, [part.keys for part in source.parts]] for split, source in sources.items()],
                asdict(wanted),
                *([known.fingerprint] if known else []),
            ]
        ),
    }


def _unlabelled(parts: Mapping[str, Parts], wanted: Wanted) -> str | None:
    """Why the test file is for predictions alone: it has one label in all rows, and train does not. None where it is none, or has both."""
    if not {"train", "test"} <= set(parts) or not wanted.label:
        return None

    def words(split: str) -> pl.Series:
        made = [pl.scan_parquet(one, glob=False).select(selectors.by_name(wanted.label)) for _, whole in parts[split] for one in whole]
        return pl.concat(made).collect().to_series() if made else pl.Series([], dtype=pl.String)

    of_test, of_train = words("test"), words("train")
    if of_test.n_unique() != 1 or of_train.n_unique() < 2:
        return None
    label = of_test[0]
    if label is not None and float((of_train == label).mean() or 0.0) ** len(of_test) > _LEAST_CHANCE:
        return None
    names = ", ".join(path.name for path, _ in parts["test"])
    return f"{names} has no label in any row" if label is None else f"{names} has {wanted.label}={label} in every row"


def _rounded(name: str, cells: pl.Series, dropped: Sequence[str], path: Path) -> UserError:
    """Says that ids were stored as floats, which have not all of their digits."""
    great = cells.filter(cells.cast(pl.Float64, strict=False).abs() >= encode.MOST_EXACT)[0]
    without = pasted_list("data.drop", [*dropped, name])
    return UserError(
        "ids above 2^53 are floats, in which several become one",
        where=path,
        given=f"{great} in column {name}",
        allowed="whole numbers, or words",
        remedy=f"store them so; or {without}; or name it in data.categorical, if that is meant",
    )


def _refuse_sorted(labels: np.ndarray, split: np.ndarray, path: Path) -> None:
    """UserError where the last rows have one label, and the table has both: it is sorted by it."""
    for code, name in ((1, "validation"), (2, "test")):
        own = labels[split == code]
        share = float((labels == own[0]).mean()) if len(own) else 1.0
        if len(own) and own.min() == own.max() and share ** len(own) < _LEAST_CHANCE:
            given = f"label {own[0]} in all {len(own):,} rows of {name}, {labels.mean():.1%} clicks in the whole table"
            raise UserError("the last rows have one label", where=path, given=given, remedy="hold out random rows: data.held_out=random")


def order_of(folder: Path, meta: Mapping[str, Any]) -> np.ndarray:
    """int64 [rows]: the row of the files, one after the other, that each prepared row is."""
    rows = sum(meta["rows"].values())
    return mapped(folder / ORDER_FILE, np.int64, (rows,)) if (folder / ORDER_FILE).is_file() else np.arange(rows)


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


def feature_names(columns: Sequence[str], key: str = "data.categorical") -> list[str]:
    """Names that a module can have: letters, digits and underscores, none of its own. UserError, of `key`, where two become the same."""
    names = ["".join(c if c.isalnum() or c == "_" else "_" for c in column) for column in columns]
    taken = {*dir(object), *_OF_MODULES.split()}
    names = [f"{name}_" if name in taken else name for name in names]
    if twice := [name for name, columns_of_it in Counter(names).items() if columns_of_it > 1]:
        raise UserError("two columns would have one name", where=key, given=twice[0], remedy="rename one of them")
    return names
