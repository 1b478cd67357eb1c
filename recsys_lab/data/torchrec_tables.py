"""A TorchRec model's tables as the CSV that `model=tables model.file=FILE` reads."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.tables.table_file import NEEDED

#: Of a sample, by feature name (1 where it has none), or the same for all.
MeanIds = Mapping[str, float] | float


def shared_features(configs: Iterable[Any]) -> frozenset[str]:
    """Features that several tables look up, such as a wide and a deep one."""
    tables = Counter(feature for config in configs for feature in config.feature_names)
    return frozenset(feature for feature, count in tables.items() if count > 1)


def name_of(feature: str, config: Any, shared: Collection[str]) -> str:
    """In plans, where a feature belongs to one table. One that several look up is called `item@wide`, as TorchRec calls its vectors."""
    return f"{feature}@{config.name}" if feature in shared else feature


def table_file(collection: EmbeddingBagCollection, mean_ids: MeanIds = 1.0, shared: Collection[str] | None = None) -> str:
    """The CSV of a model's tables: `print(table_file(model.embedding_bag_collection, {"clicks": 42.5}), end="")`.

    Args:
        collection: the model's, on any device. Its weights are not read.
        mean_ids: see `MeanIds`.
        shared: what `shared_features` of the whole model returns; None: `collection` is all of it.

    Returns:
        The text of the file, one line a feature. TorchRec does not know how ids are skewed: add the column yourself.

    >>> print(table_file(model.tables, {"item": 42.5}).splitlines()[1])
    item,10000000,64,42.5,sum,
    """
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow([*NEEDED, "pooling", "table"])
    shared = shared_features(collection.embedding_bag_configs()) if shared is None else shared
    for config in collection.embedding_bag_configs():
        named = {feature: name_of(feature, config, shared) for feature in config.feature_names}
        table = "" if list(named.values()) == [config.name] else config.name
        for feature, name in named.items():
            mean = mean_ids.get(feature, 1.0) if isinstance(mean_ids, Mapping) else mean_ids
            write.writerow((name, config.num_embeddings, config.embedding_dim, mean, config.pooling.value.lower(), table))
    return out.getvalue()
