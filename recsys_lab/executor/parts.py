"""Several parts of a model's tables as one: all exchanges of a pass are issued before one is waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.ahead import Begun
from recsys_lab.executor.execution import Part, Request, keyed
from recsys_lab.executor.table_batch import TableBatch


@dataclass(frozen=True)
class AllBegun:
    """Every part's ids on their way."""

    parts: list[Begun]

    def send(self) -> None:
        for part in self.parts:
            part.send()


class Parts(Part):
    """All tables of `whole`. Each of `parts`, which run the requests beside them, gets the features of its own tables."""

    _parts: list[tuple[Part, list[str]]]

    def __init__(self, whole: Request, parts: Sequence[tuple[Request, Part]]):
        super().__init__()
        self._pooled, self._dims = whole.pooled, whole.dims
        # In a plain attribute, which torch does not search: their buffers are none of the model's.
        self.__dict__["_parts"] = [(part, list(request.dims)) for request, part in parts]

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for part, _ in self._parts for batch in part.batches]

    def begin(self, sparse: KeyedJaggedTensor) -> AllBegun:
        return AllBegun([part.begin(only(sparse, features)) for part, features in self._parts])

    def issue(self, begun: AllBegun) -> Callable[[], Any]:
        return partial(self._put_together, [part.issue(own) for (part, _), own in zip(self._parts, begun.parts)])

    def _put_together(self, waits: list[Callable[[], Any]]) -> Any:
        rows: dict[str, Any] = {}
        for wait in waits:
            arrived = wait()
            rows |= arrived.to_dict() if self._pooled else arrived
        return keyed(rows, self._dims) if self._pooled else {feature: rows[feature] for feature in self._dims}


def only(batch: KeyedJaggedTensor, features: list[str]) -> KeyedJaggedTensor:
    """Those features of `batch`, in this order."""
    keys = batch.keys()
    return batch if keys == features else batch.permute([keys.index(feature) for feature in features])
