"""Events by law: as many users, lengths, popular items and busy hours as Yambda-5b's, with a planted truth. Every user is a pure function.

A user has a log-normal number of events over a part of the 301 days. An item is drawn by popularity, or is one of a few that this user
plays again and again, themselves drawn so. An item's artist and album follow from it: popular items have popular ones. A listen lasts half
of the track with the probability of a logit: of the user, of how user and artist match, of the item and of the hour.

From published figures: the number of users and events, the median and the largest of a user, shares of kinds, rows of tables. Fitted to
published figures: how much users differ (histories of 2,663 events on average, 105 of them likes), artists' and albums' hottest row.
Guesses: the items' exponent, those of crosses, repetition, hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from recsys_lab.data import hashing
from recsys_lab.data.columns import stretches
from recsys_lab.data.yambda.features import HISTORY, READERS
from recsys_lab.data.yambda.store import HALF, LIKE, ORGANIC, SKIP, UserEvents
from recsys_lab.tables import AccessStatistics, RankLaw, TableAccess, power_law_access

DAYS, DAY_S, STEP_S = 301, 86_400, 5
#: Of the number of a user's events.
SPREAD = 1.067
#: Shares of events that are likes, and that are neither listens nor likes.
LIKES, OTHERS = 0.0106, 0.0098
#: Exponents of the power laws of what is looked up.
EXPONENTS: Mapping[str, float] = {
    "item_id": 0.75,
    "artist_id": 0.80,
    "album_id": 0.78,
    "uid": 0.3,
    "user_x_artist": 0.5,
    "user_x_album": 0.5,
    "user_x_hour": 0.3,
    "item_x_hour": 0.75,
    "artist_x_hour": 0.80,
    "user_x_is_organic": 0.3,
    "user_x_artist_x_hour": 0.4,
}
#: The shares of items, by look-ups, without an artist, and without an album: they share row 0 of that table. Fitted to three published
#: figures of tables in equal blocks of rows. The hot rank has 1.3 times the mean load of artists, and 2.8 times that of albums; of how many
#: ranks is not said. The hot rank of 32 that died had 5.2 times the mean load of all tables. Taken as those of 8 ranks the first two are
#: 1.35 and 3.1 here, and the third is 4.6. Taken as those of 32 ranks, they would make it 1.7.
NO_ARTIST, NO_ALBUM = 0.05, 0.30
REPEATED, FAVOURITES = 0.5, 50
#: Standard deviations of the logit's parts, and its mean.
MEAN, OF_USER, OF_TASTE, OF_ITEM, OF_HOUR = 0.75, 1.6, 0.8, 0.4, 0.2
_TASTES = 2
_BLOCK_EVENTS = 1 << 22
_LENGTH_POINTS = (400, 40, 30)


@dataclass(frozen=True)
class Law:
    """`rows`: of each table. `median_events` and `most_events`: of a user."""

    users: int
    rows: Mapping[str, int]
    median_events: int
    most_events: int
    seed: int

    def to_plain(self) -> dict[str, Any]:
        shares = [LIKES, OTHERS, NO_ARTIST, NO_ALBUM, REPEATED]
        constants = [SPREAD, shares, dict(EXPONENTS), FAVOURITES, MEAN, OF_USER, OF_TASTE, OF_ITEM, OF_HOUR]
        return asdict(self) | {"rows": dict(self.rows), "constants": constants}

    @cached_property
    def counts(self) -> np.ndarray:
        """int64 [U]: events of each user."""
        events = np.exp(np.log(self.median_events) + SPREAD * self._normal("events", np.arange(self.users)))
        return np.clip(events, 1, self.most_events).astype(np.int64)

    def blocks(self) -> Iterator[UserEvents]:
        """All events, some users at a time."""
        ends = np.cumsum(self.counts)
        start = 0
        while start < self.users:
            stop = max(start + 1, int(np.searchsorted(ends, (ends[start - 1] if start else 0) + _BLOCK_EVENTS)))
            yield self._events(np.arange(start, min(stop, self.users)))
            start = stop

    def _events(self, users: np.ndarray) -> UserEvents:
        counts = self.counts[users]
        of_event = np.repeat(users, counts)
        number = stretches(np.zeros_like(counts), counts)
        times, ranks = self._times(of_event, number), self._item_ranks(of_event, number)
        counter = _counter(of_event, number)
        half = self._uniform("label", counter) < self.probability(of_event, ranks, times)
        kind, organic = self._uniform("kind", counter), self._uniform("organic", counter) < 0.5
        kinds = np.where(kind < LIKES, LIKE, np.where(kind < LIKES + OTHERS, 0, np.where(half, HALF, SKIP)))
        items = self._spread(ranks, "item_id")
        return UserEvents(users, counts, times.astype(np.int32), items.astype(np.int32), (kinds + ORGANIC * organic).astype(np.uint8))

    def probability(self, users: np.ndarray, ranks: np.ndarray, times: np.ndarray) -> np.ndarray:
        """float64 [n]: that a listen lasts half of the track or more, of users, items by rank, and times."""
        artists, hours = self._artist_ranks(ranks), times // 3600 % 24
        taste = sum(self._normal(f"taste {i}", users) * self._normal(f"style {i}", artists) for i in range(_TASTES)) / _TASTES**0.5
        logit = MEAN + OF_USER * self._normal("user", users) + OF_TASTE * taste
        logit += OF_ITEM * self._normal("item", ranks) + OF_HOUR * np.sin(2 * np.pi * hours / 24)
        return 1 / (1 + np.exp(-logit))

    def true_probability(self, users: np.ndarray, items: np.ndarray, times: np.ndarray) -> np.ndarray:
        """As `probability`, of items as they are stored."""
        return self.probability(users, self._ranks_of_items[items], times)

    def artists(self) -> np.ndarray:
        """int64 [items]: of each item; 0: none."""
        return self._spread(self._artist_ranks(self._ranks_of_items), "artist_id")

    def albums(self) -> np.ndarray:
        """int64 [items]: of each item; 0: none."""
        ranks = self._ranks_of_items
        own = self._law("album_id").ranks(self._law("item_id").share(ranks + 0.5))
        named = np.maximum(own, min(1, self.rows["album_id"] - 1))
        return self._spread(np.where(self._unnamed(ranks) < NO_ALBUM, 0, named), "album_id")

    def access(self, mean_history: float) -> AccessStatistics:
        """By formula, of every table."""
        each = {table: 1.0 + (mean_history if table in HISTORY else 0.0) for table in READERS}
        found = {table: power_law_access(table, self.rows[table], length, EXPONENTS[table]) for table, length in each.items()}
        hot = {"artist_id": NO_ARTIST, "album_id": NO_ALBUM}
        return AccessStatistics(found | {table: _with_hot_row(found[table], share) for table, share in hot.items()})

    def history_lengths(self, min_history: int, max_history: int, scan: int) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of samples' histories, float64 [n], and the weight of each: by formula, interleaved."""
        from scipy.special import expit, ndtri

        users, kinds, ages = ((np.arange(points) + 0.5) / points for points in _LENGTH_POINTS)
        events = np.clip(np.exp(np.log(self.median_events) + SPREAD * ndtri(users)), 1, self.most_events)
        events = events[events > min_history][:, None, None]
        others = OF_TASTE**2 + OF_ITEM**2 + OF_HOUR**2 / 2
        half = expit((MEAN + OF_USER * ndtri(kinds)) / np.sqrt(1 + np.pi / 8 * others))[None, :, None]
        before = np.minimum(min_history + ages * (events - min_history), scan)
        listens, most = before * (1 - LIKES - OTHERS), max_history // 3
        lengths = np.minimum(most, listens * half) + np.minimum(most, listens * (1 - half)) + np.minimum(most, before * LIKES)
        return lengths.ravel(), np.broadcast_to(events - min_history, lengths.shape).ravel()

    def _times(self, users: np.ndarray, number: np.ndarray) -> np.ndarray:
        """int64 [n]: seconds, in steps of 5, rising with the event's number."""
        active = 0.2 + 0.8 * self._uniform("active", users)
        start = np.minimum(2 * self._uniform("start", users), 1) * (1 - active)  # half of all users stay to the end
        within = (number + self._uniform("jitter", _counter(users, number))) / self.counts[users]
        days = (start + active * within) * DAYS
        day, part = np.floor(days), days - np.floor(days)
        busy = part + 0.12 * (np.cos(2 * np.pi * part) - 1) / np.pi  # fewer events at night; it rises
        return (np.clip(day * DAY_S + busy % 1.0 * DAY_S, 0, DAYS * DAY_S - STEP_S) // STEP_S * STEP_S).astype(np.int64)

    def _item_ranks(self, users: np.ndarray, number: np.ndarray) -> np.ndarray:
        """int64 [n]: 0 is the most popular item."""
        counter = _counter(users, number)
        favourite = (self._uniform("which", counter) * FAVOURITES).astype(np.int64)
        own = self._uniform("favourite", users * FAVOURITES + favourite)
        any_item = self._uniform("item", counter)
        return self._law("item_id").ranks(np.where(self._uniform("repeated", counter) < REPEATED, own, any_item))

    def _artist_ranks(self, ranks: np.ndarray) -> np.ndarray:
        own = self._law("artist_id").ranks(self._law("item_id").share(ranks + 0.5))
        return np.where(self._unnamed(ranks) < NO_ARTIST, 0, np.maximum(own, min(1, self.rows["artist_id"] - 1)))

    def _unnamed(self, ranks: np.ndarray) -> np.ndarray:
        """float64 [n]: of items by rank, uniform: the lowest have neither artist nor album, the next no album."""
        return self._uniform("no album", ranks)

    def _law(self, table: str) -> RankLaw:
        return RankLaw(self.rows[table], (EXPONENTS[table],))

    def _spread(self, ranks: np.ndarray, table: str) -> np.ndarray:
        """Ids by rank: hot rows lie anywhere in the table, but for row 0."""
        rows = self.rows[table]
        factor = max(1, int(rows * 0.6180339887498949))
        while np.gcd(factor, rows) != 1:
            factor += 1
        return ranks * factor % rows

    @cached_property
    def _ranks_of_items(self) -> np.ndarray:
        """int64 [items]."""
        ranks = np.arange(self.rows["item_id"])
        found = np.empty_like(ranks)
        found[self._spread(ranks, "item_id")] = ranks
        return found

    def _uniform(self, what: str, counter: np.ndarray) -> np.ndarray:
        return hashing.uniform(hashing.bits(hashing.key(what, self.seed), counter))

    def _normal(self, what: str, counter: np.ndarray) -> np.ndarray:
        return hashing.normal(hashing.bits(hashing.key(what, self.seed), counter))


def _counter(users: np.ndarray, number: np.ndarray) -> np.ndarray:
    return users * (1 << 20) + number


def _with_hot_row(access: TableAccess, share: float) -> TableAccess:
    """With row 0 as the hottest, which takes `share` of all look-ups."""
    others = access.between(1, sum(access.bucket_rows))
    kept = (1 - share) * access.mean_length / others.mean_length if others.mean_length else 0.0
    buckets = sorted([(share * access.mean_length, 1), *((p * kept, n) for p, n in zip(others.bucket_p, others.bucket_rows))], reverse=True)
    detail = f"{access.detail}, and {share:.1%} of look-ups in row 0"
    rows, p = tuple(n for _, n in buckets), tuple(p for p, _ in buckets)
    return TableAccess(access.table, access.mean_length, rows, p, access.origin, detail, hottest_row=0)
