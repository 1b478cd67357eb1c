"""Whole tables, and column shards with all rows: each shard on one rank."""

from functools import partial

from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.schemes.whole.explain import COLUMNS_TRAVEL, HOST_COLUMNS_TRAVEL, TABLE_TRAVELS, column_words, table_words
from recsys_lab.schemes.whole.lower import lower_whole
from recsys_lab.schemes.whole.placement import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE, check_execution, example

__all__ = ["COLUMN_WISE", "SCHEMES", "TABLE_COLUMN_WISE", "TABLE_WISE"]
SCHEMES = tuple(
    Scheme(
        name=name,
        travels=travels,
        execution="recsys_lab.schemes.whole.execute:EXECUTION",
        lower=lower_whole,
        words=table_words if name == TABLE_WISE else column_words,
        reference_cases=examples(partial(example, scheme=name)),
        rules=Rules(one_shard=name == TABLE_WISE, all_rows=True, all_columns=name == TABLE_WISE, one_host=name == TABLE_COLUMN_WISE),
        sequences=name != TABLE_COLUMN_WISE,
        any_exchange=name == TABLE_WISE,
        check_execution=check_execution,
    )
    for name, travels in ((TABLE_WISE, TABLE_TRAVELS), (COLUMN_WISE, COLUMNS_TRAVEL), (TABLE_COLUMN_WISE, HOST_COLUMNS_TRAVEL))
)
