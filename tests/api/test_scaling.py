"""Strong scaling keeps the batch of all ranks, weak scaling the batch of a rank and, as Neo does, the rows of a host."""

from __future__ import annotations

import pytest

from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words

WORDS = ("mode=simulate", "data=random", "logger=none")


def test_a_global_batch_is_divided_among_the_ranks_of_the_named_cluster() -> None:
    batches = [of_words([*WORDS, f"cluster=h100x{ranks}", "simulate.global_batch=65536"], "test").batch_size for ranks in (8, 64, 512)]
    assert batches == [8192, 1024, 128]


def test_a_global_batch_that_does_not_divide_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(UserError, match=r"simulate.global_batch.*given 1000 for 64 ranks.*960 or 1024"):
        of_words([*WORDS, "cluster=h100x64", "simulate.global_batch=1000"], "test")


def test_rows_follow_the_hosts_as_neo_scales() -> None:
    def rows(hosts: int) -> list[int]:
        words = [*WORDS, "model=neo_i", "cluster=zionex_x16", f"cluster.hosts={hosts}", "simulate.full_rows_hosts=16"]
        return [feature.rows for feature in of_words(words, "test").model.features() or ()]

    whole, quarter = rows(16), rows(4)
    assert whole == [feature.rows for feature in of_words([*WORDS, "model=neo_i"], "test").model.features() or ()]
    assert quarter == [max(round(row / 4), 1) for row in whole]


@pytest.mark.parametrize("mode", ["auto", "train"])
def test_rows_follow_the_hosts_only_where_nothing_trains(mode: str) -> None:
    words = (*WORDS[1:], f"mode={mode}", "model=neo_i", "cluster=zionex_x16", "simulate.full_rows_hosts=16")
    with pytest.raises(UserError, match="simulate.full_rows_hosts: .*would also change the rows that train here.*mode=simulate"):
        of_words(words, "test")


def test_a_model_whose_rows_the_data_decide_has_none_to_scale() -> None:
    with pytest.raises(UserError, match="simulate.full_rows_hosts"):
        of_words([*WORDS, "cluster=h100x64", "simulate.full_rows_hosts=8"], "test")
