"""`rank`: all sharders of one model on one cluster, the fastest first, and why some cannot be."""

from __future__ import annotations

import json

import pytest

from recsys_lab.commands import rank
from recsys_lab.errors import UserError

SHARDERS = "torchrec_row_wise,dmt_sptt"
WORDS = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "cluster=h100", "cluster.hosts=2"]


def ranked(capsys: pytest.CaptureFixture, *words: str) -> list[dict]:
    assert rank.main([*WORDS, *words, "--sharders", SHARDERS, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["ranked"]


def test_the_fastest_comes_first_with_its_interval_and_cost(capsys: pytest.CaptureFixture) -> None:
    found = ranked(capsys, "cluster.price_per_device_hour=2.0")
    assert {one["sharder"] for one in found} == set(SHARDERS.split(","))
    times = [one["iteration_ms"] for one in found]
    assert times == sorted(times) and all(one["fits"] and one["why_not"] is None for one in found)
    for one in found:
        assert one["interval_ms"][0] < one["iteration_ms"] < one["interval_ms"][1]
        assert one["cost_per_billion_samples"] == pytest.approx(1e9 / one["examples_per_second"] / 3600 * 2.0 * 16)


def test_what_does_not_fit_says_so_and_what_would(capsys: pytest.CaptureFixture) -> None:
    for one in ranked(capsys, "cluster.device.memory_gb=0.01"):
        assert not one["fits"] and one["iteration_ms"] is None and "nearest change that would fit" in one["why_not"]


def test_a_sharder_among_the_words_is_refused() -> None:
    with pytest.raises(UserError, match="all sharders are ranked"):
        rank.main([*WORDS, "sharder=dmt"])
