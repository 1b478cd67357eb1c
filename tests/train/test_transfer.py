"""Collectives that overlap are counted once, and not before the last rank has come."""

from __future__ import annotations

import pytest

from recsys_lab.train import transfer

ALL = (0, 1)


def noted(*collectives: tuple[str, bool, float, float]) -> list[transfer.Noted]:
    return [(kind, ALL, embedding, start, end) for kind, embedding, start, end in collectives]


@pytest.mark.parametrize(
    ("rank", "embedding", "dense"),
    [
        # The second rank comes to the first exchange at 4; the all-reduce of dense gradients lies beside the second one.
        (0, {"under_way": 10.0 + 6.0, "transfer": 6.0 + 5.0}, {"under_way": 20.0, "transfer": 19.0}),
        (1, {"under_way": 6.0 + 5.0, "transfer": 6.0 + 5.0}, {"under_way": 19.0, "transfer": 19.0}),
    ],
)
def test_transfer_begins_with_the_last_rank(rank: int, embedding: dict[str, float], dense: dict[str, float]) -> None:
    iteration = [
        noted(("all_to_all", True, 0, 10), ("all_reduce", False, 11, 31), ("all_to_all", True, 20, 26)),
        noted(("all_to_all", True, 4, 10), ("all_reduce", False, 12, 31), ("all_to_all", True, 21, 26)),
    ]
    assert transfer._of_iteration(iteration, rank) == {"embedding": embedding, "dense": dense}


def test_what_overlaps_is_counted_once() -> None:
    iteration = [noted(("all_to_all", True, 0, 10), ("all_gather", True, 5, 12), ("all_to_all", True, 20, 21))] * 2
    assert transfer._of_iteration(iteration, 0)["embedding"] == {"under_way": 13.0, "transfer": 13.0}
