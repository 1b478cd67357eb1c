"""FlexShard (arXiv 2301.02959): the rows of a table in three tiers, by how often they are read."""

from recsys_lab.plan.scheme import Scheme
from recsys_lab.schemes.tiers.explain import TRAVELS, words
from recsys_lab.schemes.tiers.lower import lower_tiers
from recsys_lab.schemes.tiers.placement import FLEXSHARD, reference_cases, served_ranks, validate

__all__ = ["FLEXSHARD", "SCHEMES"]
SCHEMES = (
    Scheme(
        name=FLEXSHARD,
        travels=TRAVELS,
        execution="recsys_lab.schemes.tiers.execute:EXECUTION",
        lower=lower_tiers,
        words=words,
        reference_cases=reference_cases,
        sequences=True,
        rules=None,
        validate=validate,
        served_ranks=served_ranks,
    ),
)
