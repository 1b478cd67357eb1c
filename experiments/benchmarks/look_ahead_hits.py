"""How much of a batch a cache holds if it knows the coming batches: counted, for caches of several sizes under several policies.

python experiments/benchmarks/look_ahead_hits.py [--rows 60000] [--ids 3400] [--skew 1.05] [--batches 220]

Prints one JSON object: by share of the rows that the cache holds, the hits of the distinct rows of a batch, once the cache is full.
`lfu` and `lru` are the policies that train. `lru_W` and `lfu_W` know the coming W batches: rows that these read leave last, the others as
before. `best` knows all (Belady). Rows of this batch and the last one never leave, as with `pipeline`. The defaults are a 48th of a table
of the benchmark larger_than_memory.py. Nothing is trained.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

WINDOWS = (1, 2, 4, 8, 16)
SHARES = (0.1, 0.2, 0.35)
NEVER = 1 << 40


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--rows", type=int, default=60_000)
    line.add_argument("--ids", type=int, default=3_400, help="of a batch")
    line.add_argument("--skew", type=float, default=1.05)
    line.add_argument("--batches", type=int, default=220, help="the second half of them is counted")
    given = line.parse_args()
    batches = drawn(given.rows, given.ids, given.skew, given.batches)
    policies = {"lfu": ("lfu", 0), "lru": ("lru", 0), **{f"{name}_{w}": (name, w) for name in ("lru", "lfu") for w in WINDOWS}}
    found = {}
    for share in SHARES:
        slots = round(share * given.rows)
        found[f"{share:g}"] = {name: hit_rate(batches, given.rows, slots, *how) for name, how in policies.items()}
        found[f"{share:g}"]["best"] = hit_rate(batches, given.rows, slots, "lru", len(batches))
    print(json.dumps(found))


def drawn(rows: int, ids: int, skew: float, count: int) -> list[np.ndarray]:
    """The distinct rows of each batch; the rank of a row says nothing of its number."""
    rng = np.random.default_rng(1)
    upto, row_of = np.cumsum(np.arange(1.0, rows + 1) ** -skew), rng.permutation(rows)
    return [np.unique(row_of[np.minimum(np.searchsorted(upto, rng.random(ids) * upto[-1]), rows - 1)]) for _ in range(count)]


def hit_rate(batches: list[np.ndarray], rows: int, slots: int, policy: str, window: int) -> float:
    """Of the distinct rows of the batches in the second half. Rows that the coming `window` batches read leave last, the latest first."""
    cached, key, read = np.zeros(rows, bool), np.zeros(rows, np.int64), np.zeros(2, np.int64)
    for number, batch in enumerate(batches):
        hit = cached[batch]
        if number >= len(batches) // 2:
            read += hit.sum(), len(batch)
        key[batch] = key[batch] + 1 if policy == "lfu" else number
        cached[batch] = True
        over = int(cached.sum()) - slots
        if over <= 0:
            continue
        free, last = cached.copy(), key.copy()
        for held in batches[max(0, number - 1) : number + 1]:
            free[held] = False
        for ahead in reversed(range(number + 1, min(len(batches), number + 1 + window))):
            last[batches[ahead]] = NEVER - ahead
        leaves = np.flatnonzero(free)
        cached[leaves[np.argpartition(last[leaves], over - 1)[:over]]] = False
    return round(float(read[0] / read[1]), 4)


if __name__ == "__main__":
    main()
