"""How long the histories of samples are, as a distribution, and what follows for ranks that each have a batch of them.

A batch's tokens, and the sum of their squares, are sums over its samples. Of several ranks one has most work, and the others wait for it.
Sums are taken as normal, with the skewness of the samples (Cornish and Fisher 1938, first term).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from recsys_lab.errors import UserError
from recsys_lab.tables.balance import dealt

#: Different lengths that are kept apart. More are put together with their neighbours.
MOST_VALUES = 1024
#: Where a law is cut into values: evenly, and ever finer towards the longest.
_EDGES = np.concatenate([np.linspace(0, 1, 193)[:-1], 1 - (1 / 192) * 2.0 ** -np.arange(1, 17), [1.0]])
#: Batches of all ranks that are drawn to see what dealing leaves, and how many samples they have at most.
_BATCHES, _MOST_DRAWN = 16, 1 << 17


@dataclass(frozen=True)
class Work:
    """What a sample costs by its length n, in FLOPs or whatever else: fixed + event n + square n^2."""

    fixed: float = 0.0
    event: float = 1.0
    square: float = 0.0

    def __call__(self, lengths: np.ndarray) -> np.ndarray:
        """float64 [n] -> float64 [n]."""
        return self.fixed + self.event * lengths + self.square * lengths**2

    @staticmethod
    def of(flops: Callable[[float], float]) -> Work:
        """The one that `flops` follows."""
        fixed, middle, far = (flops(length) for length in (0.0, 1024.0, 2048.0))
        square = (far - 2 * middle + fixed) / (2 * 1024**2)
        return Work(fixed, (middle - fixed) / 1024 - 1024 * square, square)


#: Every event of a history costs as much.
TOKENS = Work()


@dataclass(frozen=True)
class Load:
    """Of a rank's batch: `events` of its histories, the sum of the `squares` of their lengths, and its `work`."""

    events: float
    squares: float
    work: float

    def over(self, other: Load) -> Load:
        """Each figure as a multiple of the other's."""
        pairs = zip(astuple(self), astuple(other))
        return Load(*(own / least if least else 1.0 for own, least in pairs))


@dataclass(frozen=True)
class Lengths:
    """Events of a sample's history: `values`, rising, with the share of samples that have each.

    Attributes:
        values: lengths; a law is cut into values that need not be whole.
        shares: of samples, by value; their sum is 1.
        cap: the longest that may come; None: not known.
        origin: measured | formula | given | mean. With mean nothing else is known: the spread is taken as zero.
        alike: where samples are not drawn but follow one another: (so many of them, as how many drawn ones their sum varies), rising.
            Empty: they are drawn.
    """

    values: tuple[float, ...]
    shares: tuple[float, ...]
    cap: float | None = None
    origin: str = "measured"
    alike: tuple[tuple[int, float], ...] = ()

    @staticmethod
    def equal(length: float) -> Lengths:
        """Where the mean alone is known: every sample has it."""
        return Lengths((float(length),), (1.0,), None, "mean")

    @staticmethod
    def of(values: np.ndarray, shares: np.ndarray | None = None, cap: float | None = None, origin: str = "measured") -> Lengths:
        """Of samples.

        Args:
            values: lengths [n], of one sample or more.
            shares: of each, in proportion; None: one sample each.
            cap: the longest that may come.
            origin: as the attribute.

        Returns:
            The distribution. Neighbours are put together where there are many: the mean is kept.
        """
        weights = np.ones(len(values)) if shares is None else np.asarray(shares, float)
        each, place = np.unique(np.asarray(values, float), return_inverse=True)
        total = np.bincount(place, weights)
        each, total = each[total > 0], total[total > 0]
        if len(each) > MOST_VALUES:
            group = ((each - each[0]) / (each[-1] - each[0]) * (MOST_VALUES - 1)).astype(np.int64)
            sums, total = np.bincount(group, each * total), np.bincount(group, total)
            each, total = sums[total > 0] / total[total > 0], total[total > 0]
        return Lengths(tuple(each.tolist()), tuple((total / total.sum()).tolist()), cap, origin)

    @staticmethod
    def law(mean: float, spread: float, cap: float) -> Lengths:
        """A beta distribution.

        Args:
            mean: events.
            spread: the standard deviation, in events; 0: all are equally long.
            cap: the longest that may come, in events.

        Returns:
            Lengths between 0 and `cap` with this mean and this standard deviation.

        Raises:
            UserError: no such distribution is between 0 and `cap`.
        """
        if not 0 <= mean <= cap:
            raise UserError("no such lengths", where="mean", given=f"{mean:g}", allowed=f"0 to the cap, {cap:g}")
        most = (mean * (cap - mean)) ** 0.5
        if spread == 0:
            return Lengths((float(mean),), (1.0,), cap, "given")
        if not 0 < spread < most:
            raise UserError("no such lengths", where="spread", given=f"{spread:g}", allowed=f"0 to {most:,.0f}, by mean and cap")
        from scipy.special import betaincinv  # takes a moment, which others need not wait

        share = mean / cap
        size = share * (1 - share) * (cap / spread) ** 2 - 1
        values = cap * betaincinv(share * size, (1 - share) * size, (_EDGES[1:] + _EDGES[:-1]) / 2)
        return Lengths.of(values, np.diff(_EDGES), cap, "given")._with(mean, spread)

    def _with(self, mean: float, spread: float) -> Lengths:
        """Moved and stretched, which rounding makes necessary."""
        moved = mean + (np.asarray(self.values) - self.mean) * spread / self.spread
        return replace(self, values=tuple(np.clip(moved, 0, self.cap).tolist()))

    def moved(self, ratio: Load) -> Lengths:
        """With so many times the mean and the mean of squares: what a rank has beside the others'."""
        mean, squares = self.mean * ratio.events, self.mean_of_squares * ratio.squares
        stretched = (max(squares - mean**2, 0.0) ** 0.5) / self.spread if self.spread else 1.0
        return replace(self, values=tuple((mean + (np.asarray(self.values) - self.mean) * stretched).tolist()))

    @cached_property
    def mean(self) -> float:
        return float(np.dot(self.values, self.shares))

    @cached_property
    def mean_of_squares(self) -> float:
        return float(np.dot(np.square(self.values), self.shares))

    @property
    def spread(self) -> float:
        """The standard deviation."""
        return max(self.mean_of_squares - self.mean**2, 0.0) ** 0.5

    def longest_of(self, samples: int) -> float:
        """The longest of a batch, on average."""
        below = np.cumsum(self.shares) ** max(self.drawn(samples), 1.0)
        return float(np.dot(self.values, np.diff(below, prepend=0.0) / below[-1]))

    def load(self, samples: int, work: Work = TOKENS) -> Load:
        """Of a rank's batch on average."""
        of_work = work.fixed + work.event * self.mean + work.square * self.mean_of_squares
        return Load(samples * self.mean, samples * self.mean_of_squares, samples * of_work)

    def longest_rank(self, samples: int, ranks: int, work: Work = TOKENS, dealt_by: Work | None = None) -> Load:
        """Of the rank with most work, on average.

        Args:
            samples: of each rank's batch.
            ranks: whose batches are drawn alike.
            work: by which ranks are compared.
            dealt_by: all ranks' samples are dealt out so that this is even (balance.py); None: as they come.

        Returns:
            What that rank has. One rank has the mean.
        """
        if dealt_by is not None:
            return _longest_dealt(self, samples, ranks, work, dealt_by)
        values, shares = np.asarray(self.values), np.asarray(self.shares)
        of_values = work(values)
        above = of_values - of_values @ shares
        spread, drawn = float((above**2 @ shares) ** 0.5), self._apart(samples, ranks)
        if ranks == 1 or spread <= 1e-12 * float(np.abs(of_values).max()):
            return self.load(samples, work)
        skew = float(above**3 @ shares) / spread**3
        most = min(expected_most(ranks, skew / drawn**0.5) / drawn**0.5 * spread, float(above.max()))

        def of_rank(moment: np.ndarray) -> float:
            """Its mean there: as far from all ranks' as it follows work."""
            middle = float(moment @ shares)
            return samples * (middle + float((moment - middle) * above @ shares) / spread**2 * most)

        return Load(of_rank(values), of_rank(values**2), of_rank(of_values))

    def _apart(self, samples: int, ranks: int) -> float:
        """As how many drawn samples each, batches of so many vary among ranks whose batches follow one another."""
        if not self.alike or ranks == 1:
            return samples
        within = (1 / self.drawn(samples) - 1 / self.drawn(samples * ranks)) * ranks / (ranks - 1)  # the rest all ranks share
        return 1 / max(within, 1e-12)

    def drawn(self, samples: float) -> float:
        """As how many drawn samples the sum of so many varies. Between entries of `alike` by powers, above the last as many a sample."""
        if not self.alike:
            return samples
        sizes, drawn = (np.asarray(column, float) for column in zip(*self.alike))
        return float(samples * np.exp(np.interp(np.log(samples), np.log(sizes), np.log(drawn / sizes))))

    def in_order(self, spreads: Mapping[int, float]) -> Lengths:
        """The same of samples that follow one another. `spreads`: by number of them, the standard deviation of their mean."""
        alike = [(n, float(np.clip(self.spread**2 / max(spread, 1e-12) ** 2, 1.0, n))) for n, spread in sorted(spreads.items())]
        return replace(self, alike=tuple(alike))

    def __str__(self) -> str:
        cap = "" if self.cap is None else f", at most {self.cap:,.0f}"
        return f"{self.mean:,.0f} events on average, standard deviation {self.spread:,.0f}{cap} ({self.origin})"


@lru_cache(maxsize=256)
def _longest_dealt(lengths: Lengths, samples: int, ranks: int, work: Work, dealt_by: Work) -> Load:
    """Of batches that are drawn and dealt out, always the same ones."""
    draw, over_mean = np.random.default_rng(0), []
    for _ in range(max(1, min(_BATCHES, _MOST_DRAWN // (samples * ranks)))):
        drawn = draw.choice(lengths.values, samples * ranks, p=lengths.shares)
        rank, of_samples = dealt(dealt_by(drawn), ranks), work(drawn)
        most = int(np.bincount(rank, of_samples).argmax())
        over_mean.append([own[rank == most].sum() / max(own.sum() / ranks, 1e-12) for own in (drawn, drawn**2, of_samples)])
    mean = astuple(lengths.load(samples, work))
    return Load(*(float(ratio * of_mean) for ratio, of_mean in zip(np.mean(over_mean, axis=0), mean)))


@lru_cache(maxsize=1024)
def expected_most(ranks: int, skew: float = 0.0) -> float:
    """The expected greatest of `ranks` standard normal variables, or of such with a little skewness."""
    from scipy.special import log_ndtr

    x = np.linspace(-9, 9, 4001)
    chance = np.diff(np.exp(ranks * log_ndtr(x)))
    middle = (x[1:] + x[:-1]) / 2
    return float(chance @ (middle + skew / 6 * (middle**2 - 1)))
