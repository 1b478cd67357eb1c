"""Counter-based random numbers. Every value is a pure function of a key and a counter, so any row can be made alone, in any order.

The mixer is splitmix64 (Steele, Lea, Flood 2014): the n-th number of stream `key` is `mix(key + n * GOLDEN)`.
"""

from __future__ import annotations

import functools

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser of a uint64 array: 64 well-mixed bits per element."""
    return _mixed(x.copy())


def _mixed(x: np.ndarray) -> np.ndarray:
    """`mix`, in place: fewer arrays pass through the caches."""
    shifted = np.right_shift(x, _S1, out=np.empty_like(x))
    x ^= shifted
    x *= _M1
    x ^= np.right_shift(x, _S2, out=shifted)
    x *= _M2
    x ^= np.right_shift(x, _S3, out=shifted)
    return x


@functools.lru_cache(1 << 12)
def key(*parts: int | str) -> np.uint64:
    """One uint64 key from numbers and words, in order."""
    state = 0
    for part in parts:
        number = int.from_bytes(part.encode(), "little") if isinstance(part, str) else part
        while True:  # 64 bits at a time, so that long words count whole
            state = _mix_int((state + int(GOLDEN)) & _MASK ^ number & _MASK)
            number >>= 64
            if number in (0, -1):
                break
    return np.uint64(state)


def bits(stream: np.uint64 | np.ndarray, counter: np.ndarray) -> np.ndarray:
    """uint64 bits of `stream` at each `counter` (an integer array, any shape). Several streams: one for each of its last dimension."""
    x = counter.astype(np.uint64)
    x *= GOLDEN
    return _mixed(x + stream if np.ndim(stream) else np.add(x, stream, out=x))


def uniform(random_bits: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) from uint64 bits."""
    return (random_bits >> np.uint64(11)) * 2.0**-53


def normal(random_bits: np.ndarray) -> np.ndarray:
    """About normal, mean 0, variance 1: the sum of the four 16-bit parts as uniforms (Irwin-Hall), so within +-3.47."""
    low, total = np.uint64(0xFFFF), random_bits >> np.uint64(48)
    for shift in (0, 16, 32):
        part = random_bits >> np.uint64(shift)
        part &= low
        total += part
    normal = total.astype(np.float64)
    normal += 2.0
    normal *= np.sqrt(3.0) / 65536.0
    normal -= 2.0 * np.sqrt(3.0)
    return normal


def _mix_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * int(_M1)) & _MASK
    x = ((x ^ (x >> 27)) * int(_M2)) & _MASK
    return x ^ (x >> 31)
