"""Where kernels are easily wrong by one: a gradient of zero, a bucket that is just full, the end of a table among others."""

from __future__ import annotations

import pytest
import torch

from recsys_lab.kernels import Lookups, Rule, available, bags, rows, torch_embedding, update, why_not

native = pytest.mark.skipif(not available(), reason=f"no C++ kernels: {why_not()}")
PIECE = torch_embedding.PIECE


def of_torch(weight: torch.Tensor, lookups: Lookups, grad: torch.Tensor, rule: Rule, **states: torch.Tensor) -> None:
    torch_embedding.update(weight, None, states.get("state"), lookups, grad, rule, states.get("squares"))


@pytest.mark.parametrize("updated", [of_torch, pytest.param(update, marks=native)], ids=["torch", "native"])
@pytest.mark.parametrize("name", ["adam", "lamb", "sgd", "adagrad", "row_wise_adagrad"])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_row_whose_gradient_is_zero_rests_whatever_its_momentum(updated, name: str, decay: float) -> None:
    """Row 0 has gradients that cancel, row 1 has none, and row 2 moves."""
    weight = torch.ones(3, 4)
    states = {
        **dict.fromkeys(("adam", "lamb"), {"state": torch.full((3, 4), 2.0), "squares": torch.full((3, 4), 9.0)}),
        "adagrad": {"state": torch.full((3, 4), 9.0)},
        "row_wise_adagrad": {"state": torch.full((3,), 9.0)},
    }.get(name, {})
    before = {key: state.clone() for key, state in states.items()}
    grad = torch.tensor([[1.0], [-1.0], [1.0]]).expand(3, 4).contiguous()
    updated(weight, Lookups(torch.tensor([0, 0, 2])), grad, Rule(name, 0.1, weight_decay=decay, step=3), **states)
    assert (weight[:2] == 1).all() and (weight[2] != 1).all()
    assert all((state[:2] == before[key][:2]).all() and (state[2] != before[key][2]).all() for key, state in states.items())


def test_a_step_of_lamb_by_hand() -> None:
    """First steps of rows (3, 4), as long as 5, and (0, 0). Without decay the direction is the gradient's signs, sqrt(2) long."""
    weight, states = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), {"state": torch.zeros(2, 2), "squares": torch.zeros(2, 2)}
    lookups, grad = Lookups(torch.tensor([0, 1])), torch.tensor([[2.0, -7.0], [1.0, 1.0]])
    update(weight, lookups, grad, Rule("lamb", 0.1), **states)
    side = 0.1 * 5 / 2**0.5
    torch.testing.assert_close(weight, torch.tensor([[3 - side, 4 + side], [-0.1, -0.1]]))
    torch.testing.assert_close(states["state"], 0.1 * grad)
    torch.testing.assert_close(states["squares"], 0.001 * grad**2)
    decayed = torch.tensor([[3.0, 4.0]])  # direction (1, -1) + 0.5 (3, 4) = (2.5, 1)
    update(
        decayed,
        Lookups(torch.tensor([0])),
        grad[:1],
        Rule("lamb", 0.1, weight_decay=0.5),
        state=torch.zeros(1, 2),
        squares=torch.zeros(1, 2),
    )
    torch.testing.assert_close(decayed, torch.tensor([[3.0, 4.0]]) - 0.1 * 5 / 7.25**0.5 * torch.tensor([[2.5, 1.0]]))


@native
@pytest.mark.parametrize("others", [0, 1, 5000])
@pytest.mark.parametrize("times", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1])
def test_a_row_moves_once_for_all_its_look_ups_however_many_fill_a_piece(times: int, others: int) -> None:
    """Gradients of 1 add up exactly. The first and the last of 64 rows make buckets of 16 rows: rows 3 and 5 share one."""
    weight = torch.zeros(64, 16)
    ids = torch.cat([torch.tensor([0, 63]), torch.full((times,), 3), torch.full((others,), 5)])
    update(weight, Lookups(ids), torch.ones(len(ids), 16), Rule("sgd", 1.0))
    expected = torch.zeros(64)
    expected[[0, 63]], expected[3], expected[5] = -1.0, -times, -others
    assert torch.equal(weight, expected.unsqueeze(1).expand(64, 16))


@native
@pytest.mark.parametrize("weights", [None, torch.ones(4)], ids=["plain", "weighted"])
@pytest.mark.parametrize("dim", [8, 64, 128])
@pytest.mark.parametrize("wrong", [5, 9])
def test_an_id_beyond_the_second_table_is_no_row_though_the_first_is_as_long(wrong: int, dim: int, weights: torch.Tensor | None) -> None:
    """Two tables of five rows, one above the other: id 5 of the second is the eleventh row of ten."""
    weight = torch.ones(10, dim)
    lookups = Lookups(torch.tensor([0, 4, 4, wrong]), torch.tensor([0, 1, 2, 3, 4]), 2, torch.tensor([0, 5]), weights=weights)
    with pytest.raises(IndexError, match=f"id {wrong} at position 3 "):
        bags(weight, lookups)
    with pytest.raises(IndexError, match=f"id {wrong} at position 3 "):
        update(weight, lookups, torch.ones(2, 2 * dim), Rule("sgd", 1.0))
    assert (weight == 1).all()


@pytest.mark.parametrize("updated", [of_torch, pytest.param(update, marks=native)], ids=["torch", "native"])
@pytest.mark.parametrize("name", ["adam", "lamb", "sgd", "adagrad", "row_wise_adagrad"])
@pytest.mark.parametrize("ids", [[], [0, 0]], ids=["no ids", "gradients that cancel"])
def test_an_update_that_touches_no_row_changes_nothing(updated, name: str, ids: list[int]) -> None:
    weight, shape = torch.ones(3, 20), {"adam": (3, 20), "lamb": (3, 20), "adagrad": (3, 20), "row_wise_adagrad": (3,)}.get(name)
    states = {} if shape is None else {"state": torch.ones(shape)} | ({"squares": torch.ones(shape)} if name in ("adam", "lamb") else {})
    grad = torch.tensor([[1.0], [-1.0]]).expand(2, 20).contiguous()[: len(ids)]
    updated(weight, Lookups(torch.tensor(ids, dtype=torch.int64)), grad, Rule(name, 0.1, weight_decay=0.5, step=3), **states)
    assert (weight == 1).all() and all((state == 1).all() for state in states.values())


@native
@pytest.mark.parametrize("wrong", [2**63 - 1, -(2**63), -11, 100])
def test_an_id_however_large_is_refused_before_a_row_moves(wrong: int) -> None:
    weight = torch.ones(100, 4)
    lookups = Lookups(torch.tensor([0, wrong]), torch.tensor([0, 1, 2]), 1, torch.tensor([10]))
    with pytest.raises(IndexError, match=f"id {wrong} at position 1 "):
        update(weight, lookups, torch.ones(2, 4), Rule("sgd", 1.0))
    assert (weight == 1).all()


def test_a_table_that_is_a_view_is_refused() -> None:
    view, ids = torch.ones(10, 8)[:, :4], torch.tensor([0, 3])
    for look_up in (lambda: bags(view, Lookups(ids, torch.tensor([0, 1, 2]))), lambda: rows(view, ids)):
        with pytest.raises(AssertionError, match="contiguous"):
            look_up()
