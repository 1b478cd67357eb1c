"""2D parallelism by hand: which ranks are a group, what travels in it, what is averaged between groups, and what ranks hold."""

from __future__ import annotations

import pytest

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.explain import explain
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.validate import validate
from recsys_lab.schemes.replica_groups.placement import ReplicaGroups, in_each_group, within_group
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.schemes.whole.placement import in_columns, on_rank
from tests.plan.plans import workload
from tests.plan.test_schemes_by_hand import A, B, plan_of, sent

NEIGHBOURS, SPREAD = ReplicaGroups(4, 2, between_hosts=True), ReplicaGroups(4, 2, between_hosts=False)
HOSTS, PEERS = ((0, 1), (2, 3)), ((0, 2), (1, 3))


def test_groups_are_those_of_torchrec() -> None:
    """DMPCollection's docstring: eight ranks in two groups, [0, 2, 4, 6] and [1, 3, 5, 7], or, across hosts, of neighbours."""
    spread, neighbours = ReplicaGroups(8, 4, between_hosts=False), ReplicaGroups(8, 4, between_hosts=True)
    assert spread.groups == ((0, 2, 4, 6), (1, 3, 5, 7)) and spread.replicas == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert neighbours.groups == ((0, 1, 2, 3), (4, 5, 6, 7)) and neighbours.replicas == ((0, 4), (1, 5), (2, 6), (3, 7))
    for groups in (spread, neighbours, NEIGHBOURS, SPREAD, ReplicaGroups(4, 4, True)):
        placement = in_each_group(on_rank(A, 1), groups)
        hosts = groups.world_size // 2
        plan = ShardingPlan("by_hand", hosts, 2, (A,), (placement,))
        validate(plan)
        assert ReplicaGroups.of(plan) == groups and within_group(placement, groups) == on_rank(A, 1)


def test_what_travels_within_neighbours_and_between_hosts() -> None:
    """`a` is on the second rank of each host; of `b` the first has 4 columns, the second two. 6 samples a group."""
    columns = in_columns(B, "column_wise", [(0, 0, 4), (1, 4, 6)])
    assert sent(plan_of((A, B), in_each_group(on_rank(A, 1), NEIGHBOURS), in_each_group(columns, NEIGHBOURS))) == {
        "table_wise_2d.input.lengths": (HOSTS, (2 * 3 * 4.0,), (0.0, 2 * 6 * 4.0) * 2),
        "table_wise_2d.input.ids": (HOSTS, (5 * 3 * 8.0,), (0.0, 5 * 6 * 8.0) * 2),
        "table_wise_2d.output.all_to_all": (HOSTS, (0.0, 8 * 6 * 4.0) * 2, (8 * 3 * 4.0,)),
        "table_wise_2d.gradient.all_to_all": (HOSTS, (8 * 3 * 4.0,), (0.0, 8 * 6 * 4.0) * 2),
        "table_wise_2d.gradient.all_reduce": (((1, 3),), (0.0, 10 * 4 * 4.0) * 2, ()),
        "column_wise_2d.input.lengths": (HOSTS, (2 * 3 * 4.0,), ()),
        "column_wise_2d.input.ids": (HOSTS, (4 * 3 * 8.0,), ()),
        "column_wise_2d.output.all_to_all": (HOSTS, (4 * 6 * 4.0, 2 * 6 * 4.0) * 2, (6 * 3 * 4.0,)),
        "column_wise_2d.gradient.all_to_all": (HOSTS, (6 * 3 * 4.0,), (4 * 6 * 4.0, 2 * 6 * 4.0) * 2),
        "column_wise_2d.gradient.all_reduce": (PEERS, (6 * 4 * 4.0, 6 * 2 * 4.0) * 2, ()),
    }


def test_what_travels_within_ranks_that_are_apart() -> None:
    """Blocks of 5 rows. Groups are the peers, and the copies are averaged inside the hosts."""
    assert sent(plan_of((A,), in_each_group(in_row_blocks(A, range(2)), SPREAD))) == {
        "row_wise_2d.input.lengths": (PEERS, (2 * 6 * 4.0,), ()),
        "row_wise_2d.input.ids": (PEERS, (15 * 8.0,), ()),
        "row_wise_2d.output.reduce_scatter": (PEERS, (8 * 6 * 4.0,), ()),
        "row_wise_2d.gradient.all_gather": (PEERS, (8 * 3 * 4.0,), ()),
        "row_wise_2d.gradient.all_reduce": (HOSTS, (5 * 4 * 4.0,), ()),
    }


def test_one_group_averages_nothing() -> None:
    whole = ReplicaGroups(4, 4, between_hosts=True)
    own, flat = sent(plan_of((A,), in_each_group(on_rank(A, 1), whole))), sent(plan_of((A,), on_rank(A, 1)))
    assert {name.replace("_2d", ""): figures for name, figures in own.items()} == flat


def test_memory_counts_every_copy_and_its_gradient() -> None:
    """Ranks 1 and 3 hold `a`: weights, a sum for each weight and the gradient of all rows. They look it up for two ranks, not for four."""
    work = workload(3)
    flat, groups = plan_of((A,), on_rank(A, 1)), plan_of((A,), in_each_group(on_rank(A, 1), NEIGHBOURS))
    once, twice = bytes_of_ranks(flat, work), bytes_of_ranks(groups, work)
    assert once.weights == (0, 160, 0, 0) and twice.weights == twice.optimizer_state == (0, 160, 0, 160)
    served = 2 * 4 * 2 * 4 * 3  # of one rank: rows and gradients of 2 features, 4 columns, 3 samples
    assert once.buffers[1] - once.buffers[0] == 4 * served and twice.buffers[1] - twice.buffers[0] == 2 * served + 160


def test_what_a_plan_may_not_be() -> None:
    def refused(*ranks: tuple[int, ...], scheme: str = "table_wise_2d") -> pytest.ExceptionInfo[UserError]:
        shards = tuple(Shard(own, n * 5, n * 5 + 10 // len(ranks), 0, 4) for n, own in enumerate(ranks))
        with pytest.raises(UserError) as error:
            validate(plan_of((A,), Placement("a", scheme, shards)))
        return error

    assert "same place of every group" in str(refused((0, 3)).value)
    assert "of one size" in str(refused((0, 1, 2)).value)
    assert "one shard" in str(refused((0, 2), (1, 3)).value)
    assert "must hold rows" in str(refused((1, 3), (0, 2), scheme="row_wise_2d").value)
    other = in_each_group(on_rank(B, 0), SPREAD)
    with pytest.raises(UserError, match="same place of every group"):
        validate(plan_of((A, B), in_each_group(on_rank(A, 0), NEIGHBOURS), other))


def test_it_is_explained() -> None:
    sentences = " ".join(explain(plan_of((A,), in_each_group(on_rank(A, 1), NEIGHBOURS))))
    assert "between groups: the gradients of all rows, all-reduced" in sentences
    assert "table-wise on the 2 ranks of each of 2 groups" in sentences
