"""What the studies share: the paper's figures, the fitted laws, and plans of its four models on its cluster."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.tiers import tier_rows as rows_in_tiers
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.flexshard import FlexShard
from recsys_lab.sharders.flexshard.costs import Setting, setting_of
from recsys_lab.tables import AccessStatistics, RankLaw, Table

FOLDER = Path(__file__).resolve().parent
MODELS = ("RM-1", "RM-2", "RM-3", "RM-4")
TIERS = ("replicated", "host_sharded", "row_sharded")
#: Fine enough that a bucket's rows differ by 0.1 % in p.
BUCKETS = 1 << 14
FP32 = Precision("fp32")


@cache
def published() -> DictConfig:
    found = OmegaConf.load(FOLDER / "published.yaml")
    assert isinstance(found, DictConfig)
    return found


@cache
def laws() -> DictConfig:
    found = OmegaConf.load(FOLDER / "laws.yaml")
    assert isinstance(found, DictConfig)
    return found


@cache
def cluster() -> Cluster:
    """a100x32: the paper's 4 hosts of 8 A100-40, with links that were fitted to its table 6."""
    return built("cluster", "a100x32")


def law(model: str) -> RankLaw:
    return RankLaw.from_config(laws()[model].law)


def mean_length(model: str) -> float:
    return float(laws()[model].mean_length)


def table(model: str) -> Table:
    """The model's one sequence table."""
    return Table("history", int(laws()[model].rows), int(published().setting.dim), ("history",), "none")


@cache
def access(model: str, buckets: int = BUCKETS) -> AccessStatistics:
    made = law(model).access("history", table(model).rows, mean_length(model), buckets)
    return AccessStatistics({"history": made})


def workload(model: str) -> Workload:
    """The table alone: the paper publishes nothing of the dense arch."""
    of_model = access(model).tables
    lengths = {"history": mean_length(model)}
    return Workload(int(published().setting.batch_size), 0, 0.0, 0.0, 0.0, "row_wise_adagrad", "sgd", lengths, access=of_model)


def paper_options() -> dict[str, Any]:
    """The planner's options that the paper's planner had.

    The paper publishes no bandwidths but a ratio, so these are nominal: of its NICs, and of NVLink 3.0 by its data sheet. They decide
    only where Flex stops being worth it.
    """
    setting = published().setting
    nominal = {
        "a2a_global_gb_s": float(setting.nic_gb_s),
        "a2a_intra_gb_s": float(setting.nvlink_gb_s),
        "ar_global_gb_s": float(setting.all_reduce_over_all_to_all * setting.nic_gb_s),
        "ar_cross_gb_s": float(setting.ranks_per_host * setting.nic_gb_s),
    }
    return {"replica_multiplier": float(setting.replica_multiplier), "bandwidths": nominal, "align": True}


def inputs(model: str, statistics: AccessStatistics) -> PlanInputs:
    """What the plan of `model` on a100x32 is made from."""
    return PlanInputs((table(model),), statistics, cluster(), FP32, workload(model))


def plan(model: str, tiers: int, **options: Any) -> ShardingPlan:
    """The plan of `model` on a100x32."""
    return FlexShard(tiers=tiers, **options).plan(inputs(model, access(model)))


def tier_rows(made: ShardingPlan) -> dict[str, int]:
    return rows_in_tiers(made.placements[0])


def tier_shares(model: str, rows: dict[str, int]) -> dict[str, float]:
    """The share of look-ups of each tier, by the fitted law itself."""
    found, begin = {}, 0
    for tier in TIERS:
        found[tier] = float(law(model).share(begin + rows[tier]) - law(model).share(begin))
        begin += rows[tier]
    return found


def setting() -> Setting:
    """Table 1 with the paper's values and nominal bandwidths."""
    options = paper_options()
    return setting_of(cluster(), FP32, workload("RM-1"), table("RM-1").dtype, options["replica_multiplier"], options["bandwidths"])
