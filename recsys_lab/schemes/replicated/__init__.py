"""Data parallelism: every rank holds the table and looks its own samples up; gradients are averaged over all ranks."""

from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.schemes.replicated.explain import TRAVELS, words
from recsys_lab.schemes.replicated.lower import lower_replicated
from recsys_lab.schemes.replicated.placement import DATA_PARALLEL, example
from recsys_lab.tables.tiers import REPLICATED

__all__ = ["DATA_PARALLEL", "SCHEMES"]
SCHEMES = (
    Scheme(
        name=DATA_PARALLEL,
        travels=TRAVELS,
        execution="recsys_lab.schemes.replicated.execute:EXECUTION",
        lower=lower_replicated,
        words=words,
        reference_cases=examples(example),
        rules=Rules(everywhere=True),
        tier=REPLICATED,
        sequences=True,
        at_home=True,
        any_exchange=True,
    ),
)
