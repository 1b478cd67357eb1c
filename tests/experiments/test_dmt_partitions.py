"""What the partitioner is held to: planted groups are found, from every seed."""

from __future__ import annotations

import pytest

from experiments.dmt.partitions import PROBE, SEEDS, found, opened
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.partition.find import DIMS
from recsys_lab.sharders.dmt.names import OF_SAMPLES
from recsys_lab.sharders.dmt.partition_file import adjusted_rand_index


@pytest.mark.long
def test_absolute_cosines_find_the_planted_groups_from_every_seed() -> None:
    quiet_torchrec()
    groups = opened(PROBE, 1)[1].groups
    agreement = [adjusted_rand_index(partition.towers, groups) for seed in SEEDS for partition in found(seed, (OF_SAMPLES, DIMS))]
    assert len(agreement) == 9 and min(agreement) >= 0.9
