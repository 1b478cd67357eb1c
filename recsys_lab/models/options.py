"""What planners know of a model before it is built. This file and the options of every model import no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from recsys_lab.tables.lengths import TOKENS, Work

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs

#: FLOPs of attention for each pair of rows and each column of queries and values: two products forward, five backward, half of them causal.
ATTENTION = 7
Towers: TypeAlias = tuple[tuple[str, ...], ...]  # groups of feature names, one a tower


class ModelKind:
    """What a `_target_` of a model is: options that build a network (`ModelOptions`), or the network itself (`ClickModel`).

    Attributes:
        has_first_order: an id's row has a weight that is added to the logit as it is.
        begins_first_order: those weights can be those of a regression at first (`ClickModel.begin_with`).
        start_keys: the keys that must be true for that. Where null, a table of the user's sets them.
        reads_sequences: its tables give rows of sequences, which it does not pool first.
        reads_events: it reads times and actions of histories beside its tables (data/batch.py).
        has_towers: it has a module for each of `ModelInputs.towers` (towers.py).
    """

    has_first_order: ClassVar[bool] = False
    begins_first_order: ClassVar[bool] = False
    start_keys: ClassVar[tuple[str, ...]] = ()
    reads_sequences: ClassVar[bool] = False
    reads_events: ClassVar[bool] = False
    has_towers: ClassVar[bool] = False

    @staticmethod
    def widths(dim: int) -> tuple[int, ...]:
        """The widths of the vectors that a row of a table holds side by side. The model's embeddings have `dim`.

        A model that reads more than an embedding of each id says so here: (dim, 1) adds a first-order weight (deepfm).
        """
        return (dim,)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ModelKind):
    """A model's options. Its fields are the keys of its YAML; their annotations are the schema."""

    @property
    def work(self) -> Work:
        """FLOPs of a sample, forward and backward, by the length of its history. Without attention every event costs as much: one."""
        return TOKENS

    def build(self, inputs: ModelInputs) -> ClickModel:
        """The network, unsharded. Imports torch. Raises UserError where sizes do not fit."""
        raise NotImplementedError
