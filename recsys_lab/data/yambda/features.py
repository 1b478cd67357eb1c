"""DLRMv4's features: three of the history, the same of the candidate, and eight of the user and of crosses with the candidate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recsys_lab.data.protocol import Feature
from recsys_lab.errors import UserError

#: By table, what looks it up: the history, if it does, and what has one id a sample.
READERS: Mapping[str, tuple[str, ...]] = {
    "item_id": ("item_id", "item_candidate_id"),
    "artist_id": ("artist_id", "item_candidate_artist_id"),
    "album_id": ("album_id", "item_candidate_album_id"),
    "uid": ("uid",),
    "user_x_artist": ("user_x_artist",),
    "user_x_album": ("user_x_album",),
    "user_x_hour": ("user_x_hour",),
    "item_x_hour": ("item_x_hour",),
    "artist_x_hour": ("artist_x_hour",),
    "user_x_is_organic": ("user_x_is_organic",),
    "user_x_artist_x_hour": ("user_x_artist_x_hour",),
}
HISTORY = ("item_id", "artist_id", "album_id")
#: By table of a cross, the keys that are hashed, in this order.
CROSSES: Mapping[str, tuple[str, ...]] = {
    "user_x_artist": ("uid", "artist"),
    "user_x_album": ("uid", "album"),
    "user_x_hour": ("uid", "hour"),
    "item_x_hour": ("item", "hour"),
    "artist_x_hour": ("artist", "hour"),
    "user_x_is_organic": ("uid", "is_organic"),
    "user_x_artist_x_hour": ("uid", "artist", "hour"),
}
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)


def features_of(rows: Mapping[str, int], mean_history: float) -> tuple[Feature, ...]:
    """In the order of a sample's columns. `rows`: of each table. UserError where a table lacks its rows, or is none of these."""
    if set(rows) != set(READERS):
        wrong = sorted(set(rows) ^ set(READERS))
        raise UserError("rows of the eleven tables are needed", where=f"data.rows.{wrong[0]}", given=len(rows), allowed=", ".join(READERS))
    return tuple(
        Feature(name, rows[table], mean_history if name in HISTORY else 1.0, "none", table)
        for table, names in READERS.items()
        for name in names
    )


def crossed(keys: Mapping[str, np.ndarray], table: str, rows: int) -> np.ndarray:
    """int64 [n]: rows of the table of a cross, the hash of its keys (int64 [n] each) modulo `rows`."""
    return (xxhash64([keys[name] for name in CROSSES[table]]) % np.uint64(rows)).astype(np.int64)


def xxhash64(keys: list[np.ndarray]) -> np.ndarray:
    """uint64 [n]: xxHash64 (Collet, seed 0) of up to three int64 keys, one after the other in little-endian order."""
    assert len(keys) < 4, "from 32 bytes on the hash has lanes"
    found = np.full(len(keys[0]), _P5 + np.uint64(8 * len(keys)), np.uint64)
    for key in keys:
        found ^= _turned(key.astype(np.int64).view(np.uint64) * _P2, 31) * _P1
        found = _turned(found, 27) * _P1 + _P4
    for shift, prime in ((33, _P2), (29, _P3)):
        found = (found ^ (found >> np.uint64(shift))) * prime
    return found ^ (found >> np.uint64(32))


def _turned(x: np.ndarray, places: int) -> np.ndarray:
    return (x << np.uint64(places)) | (x >> np.uint64(64 - places))
