"""What a decision consists of: a priced combination, and a change of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from recsys_lab.base.store_names import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, HOST_PAGED
from recsys_lab.cluster import Price
from recsys_lab.decide.bill import Bill

#: Where rows of tables are that are larger than memory, in words.
PLACES = {
    HOST: "in host memory",
    HOST_PAGED: "in host memory",
    HOST_CACHED: "in host memory",
    DISK_CACHED: "on disk",
    DISK_HOST_CACHED: "on disk",
}


@dataclass(frozen=True)
class Row:
    """A combination under one profile. Simulated figures are None where it does not `fit`, and where the sharder cannot plan it at all.

    `batch`, `batch_per_rank`: samples. `ms`: of an iteration. Intervals are 90 % intervals, None where the profile's error is not
    known. `usd_per_1e9`: dollars per 1e9 samples at `price`, both None without a price; `device_hours_per_1e9`: the same in device-hours.
    `memory_gb`: of the fullest rank, buffers included, of `memory_there_gb` (1e9 bytes), which it may use. `memory_of_ranks_gb`: of each
    rank, also of a plan that does not fit, where it is known. `stores`: by kind the tables that are larger than that, and so not in device
    memory as a whole. `schemes`: by table how it is sharded. `phases_ms`: where the iteration's time goes.
    `bound`: what takes most of it. `pareto`: under its profile no other row is both faster and cheaper. `robust`: that under every profile.
    `software`: the profile as the record names it, which says whether the executor's pipeline is on. `command`: the line of run.py with the
    same figures. `forward_share`: of the iteration, the forward pass and its input. `checkpoint_gb`: 1e9 bytes of weights and optimizer
    state that the fullest host writes. `bill`: of the whole run that is asked for, `spot_bill`: the same at its cluster's spot offer.
    `why_not`: why there are none; `fix`: of a row that does not fit, the nearest change that does.
    `trainable`: whether the plan trains here on that device; `why_simulated_only`: why not. Over draws of what nobody knows (standing.py),
    `p_best`: how often no other combination is cheaper; `regret`: how much dearer it is than the cheapest, in the mean, relative;
    `regret_95`: in 95 % of draws at most. None where it is not compared, or an error is not known.
    """

    cluster: str
    sharder: str
    precision: str
    optimizer: str
    profile: str
    batch: int
    batch_per_rank: int
    ranks: int
    fits: bool
    ms: float | None = None
    ms_interval: tuple[float, float] | None = None
    samples_per_second: float | None = None
    usd_per_1e9: float | None = None
    usd_interval: tuple[float, float] | None = None
    device_hours_per_1e9: float | None = None
    memory_gb: float | None = None
    memory_there_gb: float | None = None
    memory_of_ranks_gb: tuple[float, ...] = ()
    schemes: dict[str, str] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)
    exposed_ms: float | None = None
    phases_ms: dict[str, float] = field(default_factory=dict)
    bound: str | None = None
    pareto: bool = False
    robust: bool = False
    why_not: str | None = None
    fix: str | None = None
    software: str | None = None
    extrapolates: str | None = None
    trainable: bool = True
    why_simulated_only: str | None = None
    p_best: float | None = None
    regret: float | None = None
    regret_95: float | None = None
    command: str = ""
    price: Price | None = None
    forward_share: float | None = None
    checkpoint_gb: float | None = None
    bill: Bill | None = None
    spot_bill: Bill | None = None

    @property
    def choices(self) -> tuple[str, str, str, str]:
        return self.cluster, self.sharder, self.precision, self.optimizer

    @property
    def name(self) -> str:
        return " ".join(self.choices)

    @property
    def tables_elsewhere(self) -> dict[str, int]:
        """Tables larger than memory by where they are, such as {"in host memory": 64}."""
        places = dict.fromkeys(PLACES[kind] for kind in self.stores)
        return {place: sum(n for kind, n in self.stores.items() if PLACES[kind] == place) for place in places}

    @property
    def cost(self) -> float:
        """Dollars, or device-hours without a price, per 1e9 samples. Of a row that has figures. To compare rows, take `cost_order`."""
        cost = self.device_hours_per_1e9 if self.usd_per_1e9 is None else self.usd_per_1e9
        assert cost is not None
        return cost

    @property
    def cost_order(self) -> tuple[bool, float]:
        """A key to sort by: rows with a price by their dollars, then those without by device-hours."""
        return self.usd_per_1e9 is None, self.cost

    @property
    def cost_interval(self) -> tuple[float, float] | None:
        """Of the cost, as wide as that of the time; None where no interval is known."""
        if self.ms is None or self.ms_interval is None:
            return None
        low, high = self.ms_interval
        return self.cost * low / self.ms, self.cost * high / self.ms


#: How a change is made that no word makes.
HARDWARE = "other hardware"


@dataclass(frozen=True)
class Change:
    """`time_change`: of a sample's time, relative: -0.1 is 10 % less; `cost_change`: of a sample's cost. None where it does not fit.

    `how`: the words that make it; `HARDWARE`; None where nothing here does. `ms`: of an iteration, which of twice the batch has twice the
    samples. `phase`: what changes most of the iteration, from `phase_ms[0]`
    to `phase_ms[1]`. Both are for as many samples as an iteration of the chosen row has.
    """

    name: str
    fits: bool
    ms: float | None = None
    usd_per_1e9: float | None = None
    time_change: float | None = None
    cost_change: float | None = None
    phase: str = ""
    phase_ms: tuple[float, float] = (0.0, 0.0)
    how: str | None = None

    @property
    def because(self) -> str:
        if f"{self.time_change or 0.0:+.1%}"[1:] == "0.0%":
            return "no difference"
        before, after = self.phase_ms
        return f"{self.phase} {before:.2f} -> {after:.2f} ms" if before != after else "nothing changes"
