"""Random ids, random dense values, random labels: for speed only, as there is nothing to learn."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from recsys_lab.data.batch import Feature, Rows
from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.generated import Shape, check_shape, make_features

CLICK_RATE = 0.25


@dataclass(frozen=True)
class RandomSplit:
    """Rows of one split."""

    shape: Shape
    name: str
    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        labels = (self.shape.label_draws(self.name, rows) < CLICK_RATE).astype(np.float32)
        ids = self.shape.ids(self.shape.ranks(self.name, rows))
        return Rows(labels, self.shape.dense(self.name, rows), self.shape.id_lengths(len(rows)), ids)


def open_random(
    wanted: tuple[Feature, ...] | None = None,
    *,
    rows_train: int,
    rows_validation: int,
    rows_test: int,
    rows_per_table: list[int],
    look_ups: list[int] | None,
    dense_features: int,
    exponent: float,
    seed_of_draws: int,
) -> OpenDataSet:
    """The features that are `wanted`, else one a table. `exponent` 0: uniform ids, above: a power law."""
    sizes = {"train": rows_train, "validation": rows_validation, "test": rows_test}
    check_shape(sizes, dense_features, exponent)
    shape = Shape(make_features(wanted, rows_per_table, look_ups), dense_features, float(exponent), seed_of_draws)
    return OpenDataSet(
        shape.features,
        dense_features,
        {name: RandomSplit(shape, name, rows) for name, rows in sizes.items() if rows},
        shape.access(),
        digest(["random", sizes, [asdict(f) for f in shape.features], dense_features, float(exponent), seed_of_draws]),
        ("random labels: for speed only, quality means nothing",),
        learnable=False,
        ranked=shape.hottest,
    )
