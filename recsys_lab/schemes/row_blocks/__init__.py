"""Rows in equal blocks, one on each rank: each id finds the rank of its row by its block."""

from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.schemes.row_blocks.explain import TRAVELS, words
from recsys_lab.schemes.row_blocks.lower import lower_row_blocks
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, example

__all__ = ["ROW_WISE", "SCHEMES"]
SCHEMES = (
    Scheme(
        name=ROW_WISE,
        travels=TRAVELS,
        execution="recsys_lab.schemes.row_blocks.execute:EXECUTION",
        lower=lower_row_blocks,
        words=words,
        reference_cases=examples(example),
        rules=Rules(all_columns=True, blocks="world"),
        sequences=True,
        divides_evenly=True,
        sums_across_ranks=True,
    ),
)
