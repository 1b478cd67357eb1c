"""Conversions of units, all in one place.

A name carries its unit: `_bytes`, `_ms`, `_us`, `_gb_s` (1e9 bytes per second), `_gb` (1e9 bytes), `_tflops` (1e12 per second).
"""

GB = 1e9
MB = 1e6
MIB = 1 << 20
US_PER_MS = 1e3
NS_PER_MS = 1e6
MS_PER_S = 1e3
MS_PER_HOUR = 3.6e6


def transfer_ms(size_bytes: float, bandwidth_gb_s: float) -> float:
    """Milliseconds that `size_bytes` take at `bandwidth_gb_s`."""
    return size_bytes / (bandwidth_gb_s * GB) * MS_PER_S


def compute_ms(flops: float, rate_tflops: float) -> float:
    """Milliseconds that `flops` floating-point operations take at `rate_tflops`."""
    return flops / (rate_tflops * 1e12) * MS_PER_S


def human_bytes(size_bytes: float) -> str:
    """`1.5 GB`, `20.0 MB`, ... with decimal prefixes, as the configs use them."""
    for prefix, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size_bytes) >= size:
            return f"{size_bytes / size:.1f} {prefix}"
    return f"{size_bytes:.0f} B"


def human_count(count: float) -> str:
    """`204.2 M`, `5.4 k`, ..."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.1f} {prefix}"
    return f"{count:.0f}"


def counted(number: int, word: str) -> str:
    """`1 rank`, `1,024 ranks`, `2 processes`."""
    return f"{number:,} {plural(word, number)}"


def plural(word: str, number: int) -> str:
    """`word` for so many."""
    return word if number == 1 else word + ("es" if word.endswith("s") else "s")


def grid(hosts: int, ranks_per_host: int, word: str = "rank") -> str:
    """`1 host x 4 ranks`, `8 hosts x 1 rank`."""
    return f"{counted(hosts, 'host')} x {counted(ranks_per_host, word)}"
