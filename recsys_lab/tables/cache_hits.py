"""How often a cache of some of a table's rows holds what a batch reads, by the table's access statistics.

A batch reads a row or does not. So caches count batches, not look-ups. LFU keeps the rows that most batches have read, LRU those read last
(Che et al., "Hierarchical Web Caching Systems", 2002). Rows of batches in flight cannot leave the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from recsys_lab.base.store_names import LRU
from recsys_lab.tables.access import TableAccess

#: Standard deviations by which the rows of the batches in flight may exceed their mean: one batch in a billion does.
DEVIATIONS = 6.0
HALVINGS = 60  # of a search


@dataclass(frozen=True)
class Hits:
    """Of the rows that one batch reads, each counted once: their number, and the number that the cache holds. All are means.

    `first`: rows that no batch has read before. They are made, not read. `leaves`: rows that leave the cache for them.
    """

    rows: float
    hits: float
    first: float = 0.0
    leaves: float = 0.0

    @property
    def misses(self) -> float:
        return self.rows - self.hits

    @property
    def read(self) -> float:
        """From the store."""
        return max(self.misses - self.first, 0.0)

    @property
    def rate(self) -> float:
        return self.hits / self.rows if self.rows else 1.0


def needed_rows(access: TableAccess, samples: int, in_flight: int, share: float = 1.0) -> int:
    """The fewest rows that a cache must hold.

    They are those of `in_flight` batches of `samples`, of a shard with `share` of the table's rows.
    """
    rows, chance = _in_batch(access, samples)
    read = -np.expm1(in_flight * np.log1p(-chance)) * share
    mean, variance = float(np.dot(rows, read)), float(np.dot(rows, read * (1 - read)))
    return min(math.ceil(mean + DEVIATIONS * math.sqrt(variance)) + 1, math.ceil(float(rows.sum()) * share))


@lru_cache(maxsize=65536)
def cache_hits(access: TableAccess, policy: str, samples: int, cached: float, in_flight: int = 1, after: float = math.inf) -> Hits:
    """Of a batch of `samples` that comes `after` so many others, with `cached` rows in the cache. `after` inf: in the long run.

    `in_flight`: batches whose rows are in use at a time. Exact for LFU, but for rows that are read equally often; LRU's is Che's
    approximation.
    """
    rows, chance = _in_batch(access, samples)
    rows_read = float(np.dot(rows, chance))
    if cached >= rows.sum():
        chance_held = -np.expm1(after * np.log1p(-chance)) if math.isfinite(after) else np.ones_like(chance)
    elif policy == LRU:
        chance_held = _lru(rows, chance, cached, after)
    elif math.isinf(after):
        chance_held = _lfu_settled(rows, chance, cached, in_flight)
    else:
        chance_held = _lfu(rows, chance, cached, in_flight, round(after))
    hits = float(np.dot(rows, chance * chance_held))
    first, rows_seen = (0.0, float(rows.sum())) if math.isinf(after) else _first(rows, chance, after)
    joins = min(cached, rows_seen + first) - min(cached, rows_seen)  # a cache that is not full gives nothing up
    return Hits(rows_read, hits, first, max(rows_read - hits - joins, 0.0))


def rows_in_store(access: TableAccess, samples: int, cached: float, after: float) -> float:
    """Rows that have left the cache at least once, `after` so many batches of `samples`."""
    rows, chance = _in_batch(access, samples)
    rows_seen = float(rows.sum()) if math.isinf(after) else _first(rows, chance, after)[1]
    return max(rows_seen - cached, 0.0)


def _first(rows: np.ndarray, chance: np.ndarray, after: float) -> tuple[float, float]:
    """Rows that a batch is the first to read, `after` so many others, and those that these have read."""
    never = np.exp(after * np.log1p(-chance))
    return float(np.dot(rows, chance * never)), float(np.dot(rows, 1 - never))


def _in_batch(access: TableAccess, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows of each bucket, the chance that a batch reads one of them). Falling."""
    p = np.minimum(np.asarray(access.bucket_p, dtype=float), 1 - 1e-12)
    chance = -np.expm1(samples * np.log1p(-p))
    return np.asarray(access.bucket_rows, dtype=float), np.minimum(chance, 1 - 1e-12)


def _lru(rows: np.ndarray, chance: np.ndarray, cached: float, after: float) -> np.ndarray:
    """The chance that a row was read in the last T batches. In those as many different rows were read as the cache holds."""
    miss = np.log1p(-chance)

    def held(batches: float) -> np.ndarray:
        return -np.expm1(batches * miss)

    high = 1.0
    while np.dot(rows, held(high)) < cached and high < 1e18:
        high *= 2
    return held(min(_root(lambda batches: float(np.dot(rows, held(batches))) - cached, 0.0, high), after))


def _lfu_settled(rows: np.ndarray, chance: np.ndarray, cached: float, in_flight: int) -> np.ndarray:
    """The rows read most often stay. The others stay while a batch that read them is in flight, or just was."""
    recent = -np.expm1(in_flight * np.log1p(-chance))
    begins = np.cumsum(rows) - rows

    def stay(most: float) -> np.ndarray:
        return np.clip((most - begins) / rows, 0.0, 1.0)

    most = _root(lambda most: most + float(np.dot(rows, (1 - stay(most)) * recent)) - cached, 0.0, cached)
    return stay(most) + (1 - stay(most)) * recent


def _lfu(rows: np.ndarray, chance: np.ndarray, cached: float, in_flight: int, after: int) -> np.ndarray:
    """The cache as counts are after so many batches.

    Rows with counts above a level stay. Of those at the level, as many stay as there is room for.
    """
    from scipy.stats import binom  # takes a second, which a plan without a cache need not wait

    chance_seen = -np.expm1(after * np.log1p(-chance))
    if np.dot(rows, chance_seen) <= cached:
        return chance_seen
    recent = -np.expm1(min(in_flight, after) * np.log1p(-chance))

    def held(level: float) -> np.ndarray:
        """Rows above `level`. Of those at it the share that its fraction leaves."""
        whole = math.floor(level)
        stay = binom.sf(whole, after, chance) + (1 - (level - whole)) * binom.pmf(whole, after, chance)
        return np.maximum(stay, recent)

    level = _root(lambda level: cached - float(np.dot(rows, held(level))), 0.0, float(after))
    return held(level)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises is 0, or the nearer end of the range."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low
