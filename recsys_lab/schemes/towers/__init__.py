"""DMT (arXiv 2403.00877): all tables of a plan in towers, each on the ranks of its tower's site, exchanged by SPTT."""

from functools import partial

from recsys_lab.plan.scheme import Rules, Scheme
from recsys_lab.schemes.towers.explain import TRAVELS, sentences, words
from recsys_lab.schemes.towers.lower import FAMILY, lower_towers, module_memory
from recsys_lab.schemes.towers.placement import (
    TOWER_COLUMN_WISE,
    TOWER_ROW_WISE,
    TOWER_SCHEMES,
    TOWER_TABLE_WISE,
    check_towers,
    reference_cases,
)

__all__ = ["SCHEMES", "TOWER_COLUMN_WISE", "TOWER_ROW_WISE", "TOWER_TABLE_WISE"]
SCHEMES = tuple(
    Scheme(
        name=name,
        travels=TRAVELS[name],
        execution="recsys_lab.schemes.towers.execute:EXECUTION",
        lower=lower_towers,
        words=words,
        reference_cases=partial(reference_cases, scheme=name),
        rules=Rules(one_shard=name == TOWER_TABLE_WISE, all_rows=name != TOWER_ROW_WISE, all_columns=name != TOWER_COLUMN_WISE),
        family=FAMILY,
        validate_plan=check_towers,
        module_memory=module_memory,
        sentences=sentences,
    )
    for name in TOWER_SCHEMES
)
