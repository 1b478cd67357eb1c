"""A digest of a file at a cost that does not grow with the file.

It covers all of a small file, or the size and some blocks of a large one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

#: Files up to this size are read whole. Of larger ones as many bytes are read, in blocks spread evenly from the first byte to the last.
WHOLE_BYTES = 16 << 20
BLOCK_BYTES = 64 << 10


def digest_of_file(path: Path) -> str:
    """Hex digits. Raises OSError where `path` cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        digest.update(size.to_bytes(8, "little"))
        for start, length in pieces(size):
            file.seek(start)
            digest.update(file.read(length))
    return digest.hexdigest()


def pieces(size: int) -> list[tuple[int, int]]:
    """(first byte, bytes) of what is read of a file of `size` bytes."""
    if size <= WHOLE_BYTES:
        return [(start, min(BLOCK_BYTES, size - start)) for start in range(0, size, BLOCK_BYTES)]
    blocks = WHOLE_BYTES // BLOCK_BYTES
    return [((size - BLOCK_BYTES) * i // (blocks - 1), BLOCK_BYTES) for i in range(blocks)]
