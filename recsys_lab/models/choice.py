"""The model of a config. It says what is known of the model before it is built, builds it, and counts its cost a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, OmegaConf

from recsys_lab.base.answers import answer
from recsys_lab.base.losses import BINARY, SAMPLED_SOFTMAX
from recsys_lab.config.schema import resolved
from recsys_lab.data.protocol import DataSet, Feature
from recsys_lab.errors import UserError
from recsys_lab.models.options import ModelKind, ModelOptions, Towers
from recsys_lab.plan.workload import DenseLayer, ModelCost, SequenceWork, TowerWork
from recsys_lab.tables import LawOptions, RankLaw, Table
from recsys_lab.tables.lengths import TOKENS, Work
from recsys_lab.tables.table_file import dims_of_tables, read_table_file

if TYPE_CHECKING:
    import torch

    from recsys_lab.models.click_model import ClickModel

#: The rooms on whose sources a model's cost depends.
COUNTED = ("models", "kernels", "tables", "precision", "config")


@dataclass(frozen=True)
class ModelChoice:
    """A model with its keys, and what data and planners must know of it before it is built.

    `rows`, `lengths`, `groups`, `law` and `dense_features` are of models that fix their own inputs. They are None where the data decide.

    Attributes:
        kind: the class of its options, or of a user's own network that has its keys itself.
        keys: of its config, typed.
        embedding_dim: D.
        dims: each table's own dimension, in place of D.
        rows, lengths: of each table, and its look-ups a sample.
        groups: how many features each group of that name has.
        law: how generated ids fall over rows.
        dense_features: K.
    """

    kind: type[ModelKind]
    keys: Mapping[str, Any]
    embedding_dim: int
    dims: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    lengths: Sequence[int] | None = None
    groups: Mapping[str, int] | None = None
    law: LawOptions | None = None
    dense_features: int | None = None
    objective: str | None = None  # of a sequence model
    file: str | None = None  # a CSV of tables, in place of rows, lengths, groups and law
    column_slices: int = 1  # tables by columns that stand for one of the model's (data/sliced.py)

    @staticmethod
    def of(group: DictConfig) -> ModelChoice:
        product = resolved(group, where="model")
        if isinstance(product, partial):
            kind, keys = product.func, product.keywords
        else:
            kind, keys = type(product), {f.name: getattr(product, f.name) for f in fields(product)}
        known = {f.name for f in fields(ModelChoice)} - {"kind", "keys", "column_slices"}
        return ModelChoice(cast("type[ModelKind]", kind), keys, **{key: value for key, value in keys.items() if key in known})

    def to_plain(self) -> dict[str, Any]:
        """Its config group, from which `of` makes it again."""
        keys = {name: asdict(cast(Any, value)) if is_dataclass(value) else value for name, value in self.keys.items()}
        return {"_target_": f"{self.kind.__module__}.{self.kind.__qualname__}"} | keys

    @property
    def has_first_order(self) -> bool:
        return self.kind.has_first_order or bool(self.keys.get("first_order"))

    @property
    def begins_first_order(self) -> bool:
        """Whether it can begin as a logistic regression."""
        return self.kind.begins_first_order and all(self.keys.get(key) for key in self.kind.start_keys)

    @property
    def open_keys(self) -> tuple[str, ...]:
        """What its config leaves open of the keys with which it can begin so."""
        return tuple(key for key in self.kind.start_keys if key in self.keys and self.keys[key] is None)

    def with_keys(self, keys: Mapping[str, Any]) -> ModelChoice:
        """With these of its keys."""
        return replace(self, keys={**self.keys, **keys}) if keys else self

    def able_to_begin(self) -> ModelChoice:
        """With those keys true; itself where none is open."""
        return replace(self, keys={**self.keys, **dict.fromkeys(self.open_keys, True)}) if self.open_keys else self

    @property
    def loss(self) -> str | None:
        """Of a model for the next item: of base/losses.py."""
        return (self.keys.get("loss") or BINARY) if self.objective == "next_item" else None

    def with_share_of_rows(self, share: float) -> ModelChoice:
        """With so much of each table's rows, one at least. UserError where the model fixes no rows."""
        if self.rows is None:
            remedy = "choose a model that has rows, such as neo_a, or give model.rows"
            raise UserError("the model fixes no rows", where="simulate.full_rows_hosts", given=f"{share:g} of them", remedy=remedy)
        return replace(self, rows=[max(round(rows * share), 1) for rows in self.rows])

    @property
    def work(self) -> Work:
        """Of a sample by the length of its history (`ModelOptions.work`). Of a user's own model each event is as much."""
        return self.kind(**self.keys).work if issubclass(self.kind, ModelOptions) else TOKENS

    def features(self) -> tuple[Feature, ...] | None:
        """Those of a model that fixes its tables (MLPerf's, the CPU paper's, FlexShard's); None where the data decide."""
        if self.file is not None:
            lines = read_table_file(self.file)
            return tuple(Feature(line.name, line.rows, line.mean_ids, line.pooling, line.table, line.law) for line in lines)
        if self.rows is None:
            if self.lengths is not None:
                raise UserError(
                    "the data decide the lengths where they decide the rows",
                    where="model.lengths",
                    given=str(list(self.lengths))[:100],
                    remedy="drop it, set model.rows too, or say data.look_ups",
                )
            return None
        pooling = "sum" if self.objective is None else "none"
        law = RankLaw.from_config(asdict(self.law)) if self.law else None
        groups = self.groups or {"cat": len(self.rows)}
        names = [f"{group}_{i}" for group, count in groups.items() for i in range(count)]
        if len(names) != len(self.rows):
            raise UserError("groups and rows differ", where="model.groups", given=f"{len(names)} features", allowed=f"{len(self.rows)}")
        lengths = [1] * len(self.rows) if self.lengths is None else self.lengths
        if len(lengths) != len(self.rows):
            raise UserError("one length a table is needed", where="model.lengths", given=len(lengths), allowed=f"{len(self.rows)}")
        each = zip(names, self.rows, lengths, strict=True)
        return tuple(Feature(name, rows, float(length), pooling, law=law) for name, rows, length in each)

    def histories(self, items: int) -> tuple[Feature, ...]:
        """That a model of histories reads, of so many `items`: next_item has the item after each, and negatives as its loss needs them."""
        length = float(self.keys["max_length"] or 50)
        negatives = {BINARY: length, SAMPLED_SOFTMAX: 128.0}.get(self.loss or "", 0.0)
        others = {"positive": length, "negative": negatives} if self.objective == "next_item" else {"candidate": 1.0}
        return tuple(Feature(name, items, each, "none", "item") for name, each in ({"item": length} | others).items())

    def tables(self, data: DataSet, dtype: str) -> tuple[Table, ...]:
        """The tables that features read, in the order in which they first appear.

        Args:
            data: the open data set with the features.
            dtype: the format of stored weights, such as "fp32".

        Returns:
            The tables. A row holds all that the model reads of an id (`ModelKind.widths`).

        Raises:
            UserError: there is no table, `dims` has another number, or a dimension cannot be cut into so many slices.
        """
        if not data.features:
            raise UserError("no tables to place: the data have no categorical feature", where="data", allowed="one or more")
        readers: dict[str, list[Feature]] = {}
        for feature in data.features:
            readers.setdefault(feature.table_name, []).append(feature)
        several = "dims" in self.keys  # a model whose tables may differ
        own = dims_of_tables(self.file) if self.file is not None and several else self.dims
        slices = self.column_slices
        dims = [self.embedding_dim] * len(readers) if own is None else [dim for dim in own for _ in range(slices)]
        if len(dims) != len(readers):
            raise UserError("one dimension a table is needed", where="model.dims", given=f"{len(dims)}", allowed=f"{len(readers)}")
        if uneven := [dim for dim in dims if dim % slices]:
            given = f"{slices} of {uneven[0]} columns"
            raise UserError("slices are equal", where="sharder.towers.column_slices", given=given, allowed="a divisor of each dimension")
        each = zip(readers.items(), (sum(self.kind.widths(dim // slices)) for dim in dims))
        return tuple(Table(name, of[0].rows, width, tuple(f.name for f in of), of[0].pooling, dtype) for (name, of), width in each)

    def build(self, tables: tuple[Table, ...], dense_features: int, device: torch.device, towers: Towers = ()) -> ClickModel:
        """The model, unsharded.

        Args:
            tables: as `tables` gives them.
            dense_features: K, values a sample; 0: none.
            device: of its weights; "meta": none.
            towers: groups of features, each with a tower module.

        Returns:
            The model.

        Raises:
            UserError: the model has no tower modules, or sizes do not fit.
        """
        from recsys_lab.models.click_model import ModelInputs  # with torch, which plans do not need

        if towers and not self.kind.has_towers:
            sequences = any(table.pooling == "none" for table in tables)
            raise UserError(
                "this model has no tower modules" + (": they compress pooled rows, and it reads sequences" if sequences else ""),
                where="sharder",
                given=f"{len(towers)} towers for {self.kind.__name__}",
                allowed="a sharder without tower modules",
                remedy="use sharder=torchrec" if sequences else None,
            )
        inputs = ModelInputs(tables, dense_features, device, towers, self.column_slices)
        if issubclass(self.kind, ModelOptions):
            return self.kind(**self.keys).build(inputs)
        return cast("type[ClickModel]", self.kind)(inputs, **self.keys)

    def counted(
        self, tables: tuple[Table, ...], dense_features: int, towers: Towers, lengths: Mapping[str, float], compute_format: str
    ) -> ModelCost:
        """What the model costs a sample, counted on the model itself (models/workload.py). Kept, unless the model is the user's own.

        `lengths`: look-ups a sample by feature. `compute_format`: of the dense arch; sequences are counted in it. Raises UserError where
        the model cannot be built.
        """
        question = {
            "model": self.to_plain(),
            "column_slices": self.column_slices,
            "tables": [asdict(table) for table in tables],
            "dense_features": dense_features,
            "towers": towers,
            "lengths": dict(lengths),
            "compute_format": compute_format if any(table.pooling == "none" for table in tables) else "fp32",
        }
        is_ours = self.kind.__module__.startswith("recsys_lab.")  # on the user's own files no answer is known to depend
        cost = answer(count, question, COUNTED) if is_ours else count(question)
        layers, modules, sequence = (cost.pop(part) for part in ("layers", "towers", "sequence"))
        return ModelCost(
            **cost,
            layers=tuple(DenseLayer(**one) for one in layers),
            towers=tuple(TowerWork(**one) for one in modules),
            sequence=sequence and SequenceWork(*map(tuple, sequence.values())),
        )


def count(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to what `ModelChoice.counted` asks, both plain. Imports torch.

    By one thread: a fork of a process that used several could wait for theirs, which it does not have.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _count(question)
    finally:
        torch.set_num_threads(threads)


def _count(question: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from recsys_lab.models.workload import describe, describe_towers

    tables = tuple(Table(**one | {"features": tuple(one["features"])}) for one in question["tables"])
    towers = tuple(map(tuple, question["towers"]))
    choice = replace(ModelChoice.of(OmegaConf.create(question["model"])), column_slices=question["column_slices"])
    model = choice.build(tables, question["dense_features"], torch.device("meta"), towers)
    cost = describe(model, question["dense_features"], question["lengths"], question["compute_format"])
    return asdict(replace(cost, towers=describe_towers(model)))


def with_chances(model: ClickModel, data: DataSet) -> ClickModel:
    """`model`, which knows of each item the chance that it is the one that came, where `data` were counted. Imports torch."""
    import torch

    from recsys_lab.data.dataset import OpenDataSet, table_names

    if model.next_item is not None and isinstance(data, OpenDataSet) and data.row_counts is not None:
        features = {feature.name: feature.table_name for feature in data.features}
        counts = data.row_counts()[table_names(data.features).index(features["positive"])]
        model.next_item = replace(model.next_item, chances=torch.from_numpy(counts / max(counts.sum(), 1)))
    return model
