"""The columns of an ablation table: figures of the record, each with its origin and its better direction."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.record.metrics import HIGHER_IS_BETTER
from recsys_lab.units import GB


@dataclass(frozen=True)
class Figure:
    """A figure's name, which begins with the split or with its origin.

    Also its place in result.json, its digits, and how two are compared.
    """

    name: str
    path: str
    digits: int
    against: str  # difference | ratio
    scale: float = 1.0  # of the record's figure

    @property
    def simulated(self) -> bool:
        return self.name.startswith("simulated_")

    @property
    def split(self) -> str | None:
        """Of a quality figure, its split."""
        return self.path.split(".")[1] if self.path.startswith("quality.") else None

    @property
    def is_part(self) -> bool:
        """A part of an iteration, or an end of its interval: nobody chooses by it."""
        return self.path.startswith(("simulated.phases_ms.", "simulated.interval_ms."))

    @property
    def higher_is_better(self) -> bool:
        metric = self.path.split(".")[2] if self.split else self.path.split(".")[1]
        return metric in HIGHER_IS_BETTER or metric == "examples_per_second"

    @property
    def words(self) -> str:
        """The figure without its split or origin."""
        rest = self.name.replace("_per_second", "/s").partition("_")[2]
        return NAMES.get(rest, rest.replace("_", " "))


#: What a figure is called where its key does not read well.
NAMES = {
    "auc": "AUC",
    "ne": "NE",
    "ndcg_10": "NDCG@10",
    "hit_rate_10": "hit rate@10",
    "cost_per_1e9": "$ per 1e9",
    "memory_gb": "memory GB",
}

FIGURES = (
    Figure("validation_auc", "quality.validation.auc", 4, "difference"),
    Figure("validation_ne", "quality.validation.ne", 4, "difference"),
    Figure("validation_log_loss", "quality.validation.log_loss", 4, "difference"),
    Figure("test_auc", "quality.test.auc", 4, "difference"),
    Figure("test_ne", "quality.test.ne", 4, "difference"),
    Figure("test_log_loss", "quality.test.log_loss", 4, "difference"),
    Figure("validation_ndcg_10", "quality.validation.ndcg_10", 4, "difference"),
    Figure("test_ndcg_10", "quality.test.ndcg_10", 4, "difference"),
    Figure("test_hit_rate_10", "quality.test.hit_rate_10", 4, "difference"),
    Figure("measured_examples_per_second", "measured.examples_per_second", 0, "ratio"),
    Figure("measured_iteration_ms", "measured.iteration_ms.median", 2, "ratio"),
    Figure("simulated_examples_per_second", "simulated.examples_per_second", 0, "ratio"),
    Figure("simulated_iteration_ms", "simulated.iteration_ms", 3, "ratio"),
    Figure("simulated_interval_low_ms", "simulated.interval_ms.low", 3, "ratio"),
    Figure("simulated_interval_high_ms", "simulated.interval_ms.high", 3, "ratio"),
    Figure("simulated_cost_per_1e9", "simulated.cost_per_billion_samples", 2, "ratio"),
    Figure("simulated_memory_gb", "plan.fullest_bytes", 2, "ratio", 1 / GB),
    Figure("simulated_compute_ms", "simulated.phases_ms.compute", 3, "ratio"),
    Figure("simulated_exchange_ms", "simulated.phases_ms.exposed_embedding_comm", 3, "ratio"),
    Figure("simulated_sync_ms", "simulated.phases_ms.exposed_dense_sync", 3, "ratio"),
    Figure("simulated_store_ms", "simulated.phases_ms.exposed_store", 3, "ratio"),
    Figure("simulated_longest_ms", "simulated.phases_ms.wait_for_longest_rank", 3, "ratio"),
    Figure("simulated_host_ms", "simulated.phases_ms.host_launch", 3, "ratio"),
    Figure("simulated_copy_ms", "simulated.phases_ms.input_copy", 3, "ratio"),
    Figure("simulated_other_ms", "simulated.phases_ms.other", 3, "ratio"),
)
