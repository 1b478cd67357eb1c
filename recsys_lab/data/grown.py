"""The same data later in its stream: longer histories, look-ups that crowd on fewer rows. For plans and simulations: nothing is drawn."""

from __future__ import annotations

import math
from dataclasses import replace

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import DataSet, Feature
from recsys_lab.tables import AccessStatistics


def grown(data: DataSet, lengths: float, skew: float) -> DataSet:
    """`data` with other lengths and statistics.

    Args:
        data: the open data set.
        lengths: features with more than one look-up a sample have so many times as many, histories no more than their cap.
        skew: a row with frequency p has one in proportion to p ** skew: Zipf's exponent is multiplied by it.

    Returns:
        The data set; itself where both are 1.
    """
    if lengths == skew == 1:
        return data
    assert isinstance(data, OpenDataSet), "openers return one"
    own = data.history
    history = None if own is None else replace(own, values=tuple(min(lengths * one, own.cap or math.inf) for one in own.values))
    longer = lengths if own is None or history is None or not own.mean else history.mean / own.mean  # no history passes its cap

    def of(feature: Feature) -> Feature:
        times = 1.0 if feature.mean_length <= 1 else longer if feature.pooling == "none" else lengths
        return replace(feature, mean_length=feature.mean_length * times)

    features = tuple(map(of, data.features))
    of_table: dict[str, float] = {}
    for before, now in zip(data.features, features):
        of_table[now.table_name] = of_table.get(now.table_name, 0.0) + now.mean_length - before.mean_length
    access = {table: one.grown(one.mean_length + of_table.get(table, 0.0), skew) for table, one in data.access.tables.items()}
    return replace(data, features=features, access=AccessStatistics(access), history=history)
