"""Bytes that a model of sequences moves beside its products: norms, gates, dropout, joins, gathers, sums of positions.

Each operation reads its inputs and writes its outputs once, as kernels of their own do. Products are left out, as their layers are priced;
so is what attention does within a sequence, which is one kernel (kernels/attention.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from recsys_lab.kernels.torch_private import TorchDispatchMode, storage_of, tree_leaves

#: Parts of the names of operations that are priced as products, or that touch no memory.
_NOT_MOVED = ("mm", "scaled_dot_product", "empty")
#: Operations that read of their first input no more than they give.
_GATHERS = ("index", "index_select", "embedding")
#: Rows by head: [b, h, T, d]. Only attention has them.
_BY_HEAD = 4
_IN_ONE_KERNEL: ContextVar[bool] = ContextVar("in_one_kernel", default=False)


@contextmanager
def one_kernel() -> Iterator[None]:
    """What runs inside is one kernel on a GPU: its results on the way never reach memory."""
    token = _IN_ONE_KERNEL.set(True)
    try:
        yield
    finally:
        _IN_ONE_KERNEL.reset(token)


class MovedBytes(TorchDispatchMode):
    """Adds up the bytes of all that runs inside, forward or backward, in `total`."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        found = operation(*args, **(kwargs or {}))
        name = operation.overloadpacket.__name__
        read, written = ([one for one in tree_leaves(of) if isinstance(one, Tensor)] for of in ((args, kwargs), found))
        inputs = {storage_of(one) for one in read}
        is_view = not name.endswith("_") and all(storage_of(one) in inputs for one in written)
        by_head = any(one.dim() >= _BY_HEAD for one in (*read, *written))
        if not (_IN_ONE_KERNEL.get() or is_view or by_head or any(part in name for part in _NOT_MOVED)):
            own = [*written, *read[1:]] if name in _GATHERS else read
            self.total += sum(one.numel() * one.element_size() for one in (*own, *written))
        return found
