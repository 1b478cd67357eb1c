"""What models say of the next item, held to formulas: every loss, with and without a temperature, and its gradients."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from recsys_lab.models.next_item import NextItem, log_sum_exp
from recsys_lab.train.objective import next_item_loss
from tests.models.sequences import NEXT_ITEM, built, drawn, keyed
from tests.train.test_objective import of_labels

LENGTHS = [3, 1, 5, 0]  # the last is padding
K = 4


def with_negatives(lengths: list[int]) -> dict[str, list[list[int]]]:
    """Items of each place, with so many negatives for each history."""
    generator = torch.Generator().manual_seed(3)
    return drawn(NEXT_ITEM, LENGTHS) | {"negative": [torch.randint(1, 30, (n,), generator=generator).tolist() for n in lengths]}


@pytest.mark.parametrize("temperature", [None, 0.2])
def test_binary_scores_each_place_with_its_own_negatives(temperature: float | None) -> None:
    model, ids = built(temperature=temperature), with_negatives([2 * n for n in LENGTHS])
    outputs = model(None, keyed(ids))
    users, item = of_places(model, ids), model.embeddings.embeddings["item"].weight
    told = [[came, *ids["negative"][b][2 * i : 2 * i + 2]] for b, own in enumerate(ids["positive"]) for i, came in enumerate(own)]
    expected = torch.stack([vectors(model, item[torch.tensor(one)]) @ user for one, user in zip(told, users)])
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [None, 0.2])
def test_sampled_softmax_is_over_the_draws_of_a_history(temperature: float | None) -> None:
    """Corrected by how often each is drawn: K of 29 items stand for all of them. What came is not its own negative."""
    ids = with_negatives([K if n else 0 for n in LENGTHS])
    ids["negative"][0][1] = ids["positive"][0][2]
    model = built(loss="sampled_softmax", temperature=temperature)
    outputs = model(None, keyed(ids))
    users, item, expected = iter(of_places(model, ids)), model.embeddings.embeddings["item"].weight, []
    for own, others in zip(ids["positive"], ids["negative"]):
        for came in own:
            user = next(users)
            score = vectors(model, item[came]) @ user
            away = [vectors(model, item[other]) @ user + math.log(29 / K) for other in others if other != came]
            expected.append(torch.stack([score, torch.stack([score, *away]).logsumexp(0)]))
    torch.testing.assert_close(outputs, torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_full_softmax_is_cross_entropy_over_every_item() -> None:
    ids = with_negatives([0] * 4)
    ids["negative"][0] = list(range(1, 30))
    model = built(loss="softmax", temperature=0.2)
    outputs = model(None, keyed(ids))
    users, item = of_places(model, ids), model.embeddings.embeddings["item"].weight
    came = torch.tensor([one - 1 for own in ids["positive"] for one in own])
    loss = next_item_loss(outputs, of_labels(torch.ones(4), 4, 3), 1, loss="softmax", mean_length=3.0)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(users @ vectors(model, item[1:]).T, came))


def test_sampled_softmax_of_all_draws_has_the_gradient_of_the_full_one() -> None:
    """With every other item drawn once, the correction is none."""
    ids = with_negatives([0] * 4)
    ids = {name: own[:1] for name, own in ids.items()}
    ids["positive"][0] = [7] * LENGTHS[0]
    gradients = []
    for loss, others in (("softmax", list(range(1, 30))), ("sampled_softmax", [n for n in range(1, 30) if n != 7])):
        model, ids["negative"] = built(loss=loss, temperature=0.2), [others]
        if loss == "sampled_softmax":
            model.next_item = NextItem(loss, 0.2, model.scale, 28)
        outputs = model(None, keyed(ids))
        next_item_loss(outputs, of_labels(torch.ones(1), 1, 1), 1, loss=loss, mean_length=3.0).backward()
        gradients.append(model.embeddings.embeddings["item"].weight.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_chunks_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    users, items = (20 * torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (11, 9))
    users.requires_grad_(), items.requires_grad_()
    assert torch.autograd.gradcheck(log_sum_exp, (users, items))
    whole = (users @ items.T).logsumexp(1)
    for at_once in (1, 40):
        monkeypatch.setattr("recsys_lab.models.next_item.SCORES_AT_ONCE", at_once)
        torch.testing.assert_close(log_sum_exp(users, items), whole)
    assert log_sum_exp(users[:0], items).shape == (0,)


@pytest.mark.parametrize("loss", ["binary", "sampled_softmax", "in_batch_softmax", "softmax"])
def test_a_batch_without_places_has_a_whole_graph(loss: str) -> None:
    model, ids = built(loss=loss, temperature=0.2), {name: [[], []] for table in NEXT_ITEM for name in table.features}
    outputs = model(None, keyed(ids))
    summed = next_item_loss(outputs, of_labels(torch.ones(0), 2, 3), 1, loss=loss, mean_length=3.0)
    summed.backward()
    assert summed == 0


@pytest.mark.parametrize(
    ("loss", "negatives", "flops"), [("binary", 6.0, 0), ("sampled_softmax", 5.0, 2 * 5 * 6 * 8), ("softmax", 1.0, 2 * 29 * 6 * 8)]
)
def test_the_loss_counts_among_the_costs(loss: str, negatives: float, flops: int) -> None:
    from recsys_lab.models.click_model import ModelInputs
    from recsys_lab.models.sequence import Sequence
    from recsys_lab.models.workload import describe
    from tests.models.sequences import SETTINGS

    def cost(loss: str, negatives: float) -> float:
        model = Sequence(**SETTINGS | {"loss": loss}).build(ModelInputs(NEXT_ITEM, 0, torch.device("meta")))
        lengths = dict.fromkeys(("item", "positive", "category", "time"), 6.0)
        return describe(model, 0, lengths | {"negative": negatives}).forward_flops_per_sample

    assert cost(loss, negatives) - cost("binary", 6.0) == flops


def of_places(model, ids) -> Tensor:
    """[N, D] of users at each place."""
    hidden, _ = model.read_history(model.embeddings(keyed(ids)), model.roles.histories[0])
    return model.next_item.of_users(hidden)


def vectors(model, rows: Tensor) -> Tensor:
    return rows if model.next_item.temperature is None else normalize(rows, dim=-1)


def test_in_batch_softmax_counts_each_item_by_the_chance_that_it_is_there() -> None:
    ids = with_negatives([0] * 4)
    ids["positive"] = [[5, 9, 5], [7], [9, 5, 3, 3, 11], []]
    model = built(loss="in_batch_softmax", temperature=0.2)
    chances = torch.rand(30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model.next_item = replace(model.next_item, chances=chances / chances.sum())
    outputs = model(None, keyed(ids))
    users, item, expected = of_places(model, ids), model.embeddings.embeddings["item"].weight, []
    there = 1 - (1 - model.next_item.chances) ** 9
    for user, came in zip(users, [one for own in ids["positive"] for one in own]):
        scores = {one: vectors(model, item[one]) @ user for one in (3, 5, 7, 9, 11)}
        weighed = torch.stack([score if one == came else score - there[one].log().float() for one, score in scores.items()])
        expected.append(torch.stack([scores[came], weighed.logsumexp(0)]))
    torch.testing.assert_close(outputs, torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_the_in_batch_sum_is_that_over_every_item_on_average() -> None:
    """Over many batches of 6 places, drawn by their chances."""
    generator = torch.Generator().manual_seed(5)
    chances = torch.softmax(torch.randn(8, generator=generator), 0).double()
    user, items = torch.randn(4, generator=generator), torch.randn(8, 4, generator=generator)
    scored = NextItem("in_batch_softmax", None, 1.0, 8, chances)
    drawn_ids = torch.multinomial(chances.expand(4000, 8), 6, replacement=True, generator=generator)
    found = torch.stack([scored._of_batch(user.expand(6, 4), items[ids], ids)[0].exp() for ids in drawn_ids])
    came, scores = drawn_ids[:, 0], (items @ user).exp()
    # The place's own item is always there and counts once. The others are there given it: five more draws, where six were corrected for.
    there = 1 - (1 - chances) ** 6
    others = torch.stack(
        [(scores * (1 - (1 - chances) ** 5) / there).sum() - (scores * (1 - (1 - chances) ** 5) / there)[one] for one in came]
    )
    assert found.mean() == pytest.approx((scores[came] + others).mean().item(), rel=0.03)


@pytest.mark.parametrize("at_once", [1 << 19, 6])
def test_added_weights_have_gradients(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsys_lab.models.next_item.SCORES_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 3, generator=generator, dtype=torch.float64, requires_grad=True) for n in (5, 4))
    added, own = torch.randn(4, generator=generator, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    assert torch.autograd.gradcheck(lambda u, i: log_sum_exp(u, i, added, own), (users, items))
    scores = users @ items.T + added
    scores[torch.arange(5), own] -= added[own]
    torch.testing.assert_close(log_sum_exp(users, items, added, own), scores.logsumexp(1))
