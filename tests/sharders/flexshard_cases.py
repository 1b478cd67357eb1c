"""Small settings and rows that FlexShard's tests share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from recsys_lab.sharders.flexshard.bandwidths import Bandwidths
from recsys_lab.sharders.flexshard.costs import Setting
from recsys_lab.sharders.flexshard.rows import Rows

#: The paper's: 4 hosts of 8 ranks, batch 4,096, dimension 256, FP32, a multiplier of 6.
PAPER = Setting(4, 8, 4096, Bandwidths(25.0, 300.0, 75.0, 200.0))


@st.composite
def settings_of(draw) -> Setting:
    """Any cluster whose links within a host are at least as fast as those between hosts."""
    a2a_global = draw(st.floats(0.5, 50))
    return Setting(
        hosts=draw(st.integers(2, 4)),
        ranks_per_host=draw(st.integers(2, 8)),
        batch_size=draw(st.integers(1, 64)),
        bandwidths=Bandwidths(a2a_global, a2a_global * draw(st.floats(1, 10)), draw(st.floats(0.5, 500)), draw(st.floats(0.5, 500))),
        replica_multiplier=draw(st.floats(1, 8)),
    )


def one_table(p: list[float], dim: int = 4) -> Rows:
    """A table of one row a value."""
    return Rows.merged([(np.ones(len(p), np.int64), np.sort(p)[::-1], dim)])
