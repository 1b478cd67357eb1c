"""Rows split over the ranks of a host: of whole tables, or of column shards on hosts of their own (a grid)."""

from functools import partial

from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.schemes.in_host.explain import GRID_TRAVELS, ROWS_TRAVEL, grid_words, row_words
from recsys_lab.schemes.in_host.lower import lower_in_host
from recsys_lab.schemes.in_host.placement import GRID_SHARD, TABLE_ROW_WISE, check_execution, example

__all__ = ["GRID_SHARD", "SCHEMES", "TABLE_ROW_WISE"]
SCHEMES = tuple(
    Scheme(
        name=name,
        travels=travels,
        execution="recsys_lab.schemes.in_host.execute:EXECUTION",
        lower=lower_in_host,
        words=words,
        reference_cases=examples(partial(example, scheme=name)),
        rules=Rules(all_columns=name == TABLE_ROW_WISE, one_host=name == TABLE_ROW_WISE, blocks="host"),
        sums_across_ranks=True,
        check_execution=check_execution,
    )
    for name, travels, words in ((TABLE_ROW_WISE, ROWS_TRAVEL, row_words), (GRID_SHARD, GRID_TRAVELS, grid_words))
)
