"""Writes a safetensors file a few rows at a time.

The format's own library wants every tensor whole. For hi/lo split weights that would take a second copy of the table. It reads parts of
what is written here.

The format is eight bytes of the header's length, the header in JSON, then the data. The header has by name the dtype, the shape, and where
the data begin and end.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import torch

from recsys_lab.executor.some_rows import SomeRows
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.kernels.stored import StoredWeights

Content: TypeAlias = torch.Tensor | StoredWeights | RowField | SomeRows

CHUNK_ELEMENTS = 1 << 22  # of what is converted, written or read at once
#: So much is written before the system is asked to bring it to disk, and to keep none of it in memory, where training's data are.
FLUSHED_BYTES = 1 << 26
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, Content], metadata: Mapping[str, str]) -> int:
    """Writes `tensors` by name. Weights in several parts as FP32. On disk when it returns the CRC-32 of the file. Raises OSError."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    # Large elements first: then all of them begin where their kind may be read from.
    ordered = dict(sorted(tensors.items(), key=lambda item: -_dtype(item[1]).itemsize))
    end = 0
    for name, content in ordered.items():
        begin, end = end, end + math.prod(content.shape) * _dtype(content).itemsize
        header[name] = {"dtype": _NAMES[_dtype(content)], "shape": list(content.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    checksum, waiting = zlib.crc32(head), 0
    with open(path, "wb") as f, ThreadPoolExecutor(1) as beside:
        f.write(head)
        for content in ordered.values():
            for part in _parts(content):
                data = part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
                summed = beside.submit(zlib.crc32, data, checksum)
                f.write(data)
                checksum = summed.result()
                waiting += len(data)
                if waiting >= FLUSHED_BYTES:
                    f.flush()
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    waiting = 0
        f.flush()
        os.fsync(f.fileno())
    return checksum


def row_steps(begin: int, end: int, shape: tuple[int, ...]) -> Iterator[slice]:
    """Rows [begin, end) of a tensor of `shape`, about CHUNK_ELEMENTS at a time."""
    step = max(1, CHUNK_ELEMENTS // max(1, math.prod(shape[1:])))
    for first in range(begin, end, step):
        yield slice(first, min(first + step, end))


def _parts(content: Content) -> Iterator[torch.Tensor]:
    if not content.shape:
        yield content if isinstance(content, torch.Tensor) else content.read()
        return
    for rows in row_steps(0, content.shape[0], tuple(content.shape)):
        yield content[rows] if isinstance(content, torch.Tensor) else content.read(rows).to(_dtype(content))


def _dtype(content: Content) -> torch.dtype:
    """Of what is written: plain formats as they are."""
    if not isinstance(content, StoredWeights):
        return content.dtype
    return content.model.dtype if content.rest is None else torch.float32
