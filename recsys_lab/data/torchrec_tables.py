"""A TorchRec model's tables as the CSV that `model=tables model.file=FILE` reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.tables.table_file import NEEDED

#: Of a sample, by feature name (1 where it has none), or the same for all.
MeanIds = Mapping[str, float] | float


def table_file(collection: EmbeddingBagCollection, mean_ids: MeanIds = 1.0) -> str:
    """The CSV of a model's tables: `print(table_file(model.embedding_bag_collection, {"clicks": 42.5}), end="")`.

    Args:
        collection: the model's, on any device. Its weights are not read.
        mean_ids: see `MeanIds`.

    Returns:
        The text of the file, one line a feature. TorchRec does not know how ids are skewed: add the column yourself.

    >>> print(table_file(model.tables, {"item": 42.5}).splitlines()[1])
    item,10000000,64,42.5,sum,
    """
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow([*NEEDED, "pooling", "table"])
    for config in collection.embedding_bag_configs():
        table = "" if config.feature_names == [config.name] else config.name
        for feature in config.feature_names:
            mean = mean_ids.get(feature, 1.0) if isinstance(mean_ids, Mapping) else mean_ids
            write.writerow((feature, config.num_embeddings, config.embedding_dim, mean, config.pooling.value.lower(), table))
    return out.getvalue()
