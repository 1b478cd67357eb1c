"""Equal ids of a rank's batch travel once: of sequences, whose rows are then copied to all places of their ids.

TorchRec's `use_index_dedup` does the same with a kernel that there is on GPUs alone, and adds gradients up in an order of chance. Here both
kinds of device do it, with the same bits every time. Lengths are those that TorchRec makes, so that as many bytes travel.

Shapes: F features, B samples, N ids of the batch, U distinct ones, D columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from recsys_lab.executor.execution import only
from recsys_lab.kernels import Lookups
from recsys_lab.kernels.torch_embedding import summed


@dataclass(frozen=True)
class DistinctIds:
    """A batch with each id of a table once.

    Attributes:
        features: distinct ids, rising within a table and spread over its features and samples, then the features that stay as they are.
        batch: the features whose ids are distinct now, as they were.
        places: int64 [N], of each id of `batch` among the distinct ones.
    """

    features: KeyedJaggedTensor
    batch: KeyedJaggedTensor
    places: torch.Tensor

    def copied(self, rows: Mapping[str, JaggedTensor]) -> dict[str, JaggedTensor]:
        """Of the rows of `features` those of the batch, by feature."""
        keys, lengths = self.batch.keys(), self.batch.lengths().view(-1, self.batch.stride())
        distinct = torch.cat([rows[feature].values() for feature in keys])
        of_feature = _Copies.apply(distinct, self.places).split(self.batch.length_per_key())
        copies = {key: JaggedTensor(own, lengths=length) for key, own, length in zip(keys, of_feature, lengths)}
        return dict(rows) | copies


class Deduplication:
    """Makes the ids of batches distinct: of `tables`, all of sequences. The features of other tables follow as they are."""

    def __init__(self, tables: Sequence[EmbeddingConfig], others: Sequence[EmbeddingConfig], device: torch.device):
        self._features = [feature for table in tables for feature in table.feature_names]
        self._others = [feature for table in others for feature in table.feature_names]
        self._features_of_table = [len(table.feature_names) for table in tables]
        first_rows = torch.tensor([0, *(table.num_embeddings for table in tables)], device=device).cumsum(0)
        self._first_rows = first_rows  # int64 [T + 1]: tables one behind the other
        self._base = torch.repeat_interleave(first_rows[:-1], torch.tensor(self._features_of_table, device=device))

    def of(self, sparse: KeyedJaggedTensor) -> DistinctIds:
        batch = only(sparse, self._features)
        samples, sizes = batch.stride(), batch.offsets()[:: batch.stride()].diff()
        base = torch.repeat_interleave(self._base, sizes, output_size=batch.values().numel())
        rows, places = torch.unique(base + batch.values(), return_inverse=True)
        counts = torch.searchsorted(rows, self._first_rows).diff()
        ids = rows - torch.repeat_interleave(self._first_rows[:-1], counts, output_size=len(rows))
        lengths = torch.cat([_spread(count, features * samples) for count, features in zip(counts, self._features_of_table)])
        lengths = lengths.to(batch.lengths().dtype)
        if self._others:
            rest = only(sparse, self._others)
            ids, lengths = torch.cat([ids, rest.values()]), torch.cat([lengths, rest.lengths()])
        return DistinctIds(KeyedJaggedTensor([*self._features, *self._others], ids, lengths=lengths), batch, places)


def _spread(count: torch.Tensor, bags: int) -> torch.Tensor:
    """int64 [bags]: `count` in parts as even as can be."""
    edges = torch.arange(bags + 1, device=count.device) * count
    return edges.div_(bags, rounding_mode="floor").diff()


class _Copies(torch.autograd.Function):
    """[U, D] -> [N, D]. Backward the gradients of equal ids are added up in FP32, in the order of the ids."""

    @staticmethod
    def forward(ctx, distinct: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        return distinct.index_select(0, places)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        (places,) = ctx.saved_tensors
        return summed(Lookups(places), grad.contiguous(), grad.shape[1])[1].to(grad.dtype), None
