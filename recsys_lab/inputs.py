"""What a run is made of, from its config: data, tables, model."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.options import DataCommon
from recsys_lab.config.schema import build
from recsys_lab.data.batch import DataSet, Feature
from recsys_lab.data.capped import capped
from recsys_lab.data.frequencies import with_frequencies
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ClickModel
from recsys_lab.tables import RankLaw, Table

LOADER_KEYS = [field.name for field in fields(DataCommon)]  # of the data group: the rest is the data set's
LABEL_BLOCK_ROWS = 65_536
Towers = tuple[tuple[str, ...], ...]  # groups of feature names


def open_data(config: DictConfig) -> DataSet:
    """The data set of `config`. Where the model fixes its tables or its dense features, data that are made are made for it."""
    ours = OmegaConf.masked_copy(config.data, [key for key in config.data if key not in LOADER_KEYS])
    if "dense_features" in ours and config.model.get("dense_features") is not None:
        ours.dense_features = config.model.dense_features
    data = build(ours, wanted_features(config))
    return with_frequencies(data, config.data.frequencies) if config.data.frequencies else data


def open_capped(config: DictConfig, rows: int | None) -> DataSet:
    """The data as they train here: tables of at most `rows` rows."""
    data = open_data(config)
    return data if rows is None else capped(data, rows)


def check_data(data: DataSet, config: DictConfig) -> None:
    """Refuses, before anything is trained, a split of clicks whose quality could not be told. Raises UserError."""
    if config.mode not in ("auto", "train") or not data.learnable or config.model.get("objective") == "next_item":
        return
    for split in ("validation", "test"):
        if split not in data.splits:
            continue
        rows, seen = data.splits[split], set()
        for start in range(0, rows.rows, LABEL_BLOCK_ROWS):
            seen |= set(rows.read(np.arange(start, min(start + LABEL_BLOCK_ROWS, rows.rows))).labels.tolist())
            if len(seen) > 1:
                break
        else:
            raise UserError(
                f"split {split} has only label {int(next(iter(seen)))}: AUC is undefined",
                where=f"data.splits.{split}",
                given=f"{rows.rows} rows of one class",
                remedy="give it rows of both classes",
            )


def wanted_features(config: DictConfig) -> tuple[Feature, ...] | None:
    """The features of a model that fixes its tables (MLPerf's, the CPU paper's, FlexShard's); None where the data decide."""
    rows, lengths = config.model.get("rows"), config.model.get("lengths")
    if rows is None:
        return None
    pooling = "none" if "objective" in config.model else "sum"  # a sequence model has an objective
    law = RankLaw.from_config(config.model.law) if config.model.get("law") else None
    groups = config.model.get("groups") or {"cat": len(rows)}
    names = [f"{group}_{i}" for group, count in groups.items() for i in range(count)]
    if len(names) != len(rows):
        raise UserError("groups and rows differ", where="model.groups", given=f"{len(names)} features", allowed=f"{len(rows)}")
    each = zip(names, rows, lengths or [1] * len(rows), strict=True)
    return tuple(Feature(name, r, float(n), pooling, law=law) for name, r, n in each)


def tables_of(config: DictConfig, data: DataSet, dtype: str) -> tuple[Table, ...]:
    """The tables that the features of `data` read, in the order in which they first appear. Their weights are stored in `dtype`.

    Their dimension is the model's, or each has its own of `model.dims`; a row holds all that the model reads of an id
    (`ClickModel.widths`). Raises UserError where `model.dims` has another number of tables.
    """
    readers: dict[str, list[Feature]] = {}
    for feature in data.features:
        readers.setdefault(feature.table_name, []).append(feature)
    dims = config.model.get("dims")
    dims = [config.model.embedding_dim] * len(readers) if dims is None else dims
    if len(dims) != len(readers):
        raise UserError("one dimension a table is needed", where="model.dims", given=f"{len(dims)}", allowed=f"{len(readers)}")
    widths = getattr(get_object(config.model._target_), "widths", ClickModel.widths)
    each = zip(readers.items(), dims)
    return tuple(Table(name, of[0].rows, sum(widths(dim)), tuple(f.name for f in of), of[0].pooling, dtype) for (name, of), dim in each)


def build_model(config: DictConfig, data: DataSet, device: torch.device, towers: Towers = ()) -> ClickModel:
    """The model of `config` for the features of `data`; with a tower module for each of `towers`."""
    if towers and with_towers(config.model) is None:
        raise UserError(
            "this model has no tower modules",
            where="sharder",
            given=f"{len(towers)} towers for {config.model._target_.rsplit('.', 1)[-1]}",
            allowed="a sharder without tower modules",
        )
    tables = tables_of(config, data, build(config.precision).table)
    return model_for(config.model, tables, data.dense_features, device, towers)


def model_for(group: DictConfig, tables: tuple[Table, ...], dense_width: int, device: torch.device, towers: Towers = ()) -> ClickModel:
    """The model of a config group for these tables; of the class that it has with towers, where there are any."""
    if not towers:
        return build(group, tables, dense_width, device)
    return build(group, tables, dense_width, device, towers, instead=with_towers(group))


def with_towers(group: DictConfig) -> type[ClickModel] | None:
    """The class of a config group's model with towers; None where it has none."""
    return getattr(get_object(group._target_), "with_towers", None)
