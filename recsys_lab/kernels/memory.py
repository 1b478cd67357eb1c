"""Pages of tables. A random look-up needs a page's address each time. With pages of 2 MB the processor's TLB holds most of them."""

from __future__ import annotations

import ctypes
import math
import sys

import torch

PAGE_BYTES = 1 << 21
ALIGNED_BYTES = 1 << 12
_ADVISE_HUGE = 14  # MADV_HUGEPAGE of Linux


def empty_in_huge_pages(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
    """A contiguous tensor that is not filled. On a CPU a large one begins at a page of 4 kB and lies, where possible, in huge pages.

    So a row of two cache lines is one pair of lines, which the processor fetches together. No row shares a pair with its neighbour.
    """
    count, size = math.prod(shape), dtype.itemsize
    if (device is not None and device.type != "cpu") or count * size < PAGE_BYTES:
        return torch.empty(shape, dtype=dtype, device=device)
    room = torch.empty(count + ALIGNED_BYTES // size, dtype=dtype)
    first = -room.data_ptr() % ALIGNED_BYTES // size
    return in_huge_pages(room[first : first + count].view(shape))


def in_huge_pages(tensor: torch.Tensor) -> torch.Tensor:
    """Asks the system to back `tensor` with huge pages, and returns it. Before it is first written to: what is there already stays.

    A request only, without effect on values, on other devices, on other systems and on small tensors.
    """
    if tensor.device.type == "cpu" and tensor.nbytes >= PAGE_BYTES and sys.platform == "linux":
        begin = -(-tensor.data_ptr() // PAGE_BYTES) * PAGE_BYTES
        stop = (tensor.data_ptr() + tensor.nbytes) // PAGE_BYTES * PAGE_BYTES
        if stop > begin:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(stop - begin), _ADVISE_HUGE)
    return tensor
