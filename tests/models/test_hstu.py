"""HSTU: its formulas written again, what each place may see, and that it learns more than popularity."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import layer_norm, linear, silu

from recsys_lab.data.batch import Events
from recsys_lab.errors import UserError
from recsys_lab.models import pointwise
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.hstu import HSTU
from recsys_lab.models.hstu.network import HSTUBlock, HSTUNetwork
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.jagged import Places
from recsys_lab.models.pointwise import TimeBias, attend
from recsys_lab.models.workload import describe
from recsys_lab.tables import Table
from tests.models.sequences import CLICK, NEXT_ITEM, D, drawn, keyed
from tests.some_keys import check_some_keys

SIZES: dict[str, Any] = {"max_length": 12, "blocks": 2, "heads": 2, "attention_dim": 3, "linear_dim": 5}


def built(tables: tuple[Table, ...] = NEXT_ITEM, dim: int = D, **changes: Any) -> HSTUNetwork:
    model = HSTU(**{"embedding_dim": dim, "objective": "next_item"} | SIZES | changes).build(ModelInputs(tables, 0, torch.device("cpu")))
    initialise_dense(model, 1, torch.device("cpu"))
    fill_tables(model.embeddings, tables, 1)
    with torch.no_grad():
        model.place.weight.mul_(20)
        for block in model.blocks:
            block.bias.weight.mul_(20)
    return model


def normed(rows: torch.Tensor, module: torch.nn.LayerNorm) -> torch.Tensor:
    return layer_norm(rows, module.normalized_shape, module.weight, module.bias, module.eps)


def by_hand(model: HSTUNetwork, ids: dict, sample: int) -> torch.Tensor:
    """Equations 1 to 3 for one sample, head by head, place by place."""
    tables = {name: t.name for t in NEXT_ITEM for name in t.features}
    vectors = [model.embeddings.embeddings[tables[n]].weight[torch.tensor(ids[n][sample])] for n in ("item", "category", "time")]
    count = len(ids["item"][sample])
    places = torch.arange(count).flip(0).clamp(max=SIZES["max_length"] - 1)
    rows = sum(vectors) * math.sqrt(D) + model.place.weight[places]
    heads, qk, v = SIZES["heads"], SIZES["attention_dim"], SIZES["linear_dim"]
    for block in model.blocks:
        projected = silu(linear(normed(rows, block.before), block.project.weight, block.project.bias))
        gate, values, queries, keys = projected.split([heads * v, heads * v, heads * qk, heads * qk], dim=1)
        attended = torch.zeros(count, heads * v)
        for place in range(count):
            for head in range(heads):
                for other in range(place + 1):
                    score = queries[place, head * qk : (head + 1) * qk] @ keys[other, head * qk : (head + 1) * qk]
                    score = score + block.bias.weight[min(place - other, SIZES["max_length"] - 1), 0]
                    attended[place, head * v : (head + 1) * v] += (
                        silu(score) / SIZES["max_length"] * values[other, head * v : (head + 1) * v]
                    )
        rows = rows + linear(normed(attended, block.after) * gate, block.mix.weight, block.mix.bias)
    return normed(rows, model.hidden)


def test_a_layer_begins_as_less_than_its_residual() -> None:
    """With torch's own first weights it was four times as large, and hid which item a row is."""
    torch.manual_seed(0)
    block = HSTUBlock(64, 2, 32, 32, 50, 0.0, None)
    block.reset_parameters()
    lengths, rows = torch.tensor([4, 50]), torch.randn(54, 64) * 0.046  # as large as the vectors of 12,000 items with their places
    places = Places.of(lengths, torch.device("cpu"))
    added = block(rows, places, places.groups(lengths)) - rows
    assert 0 < added.std() < 0.5 * rows.std()


def test_the_model_is_its_formulas() -> None:
    model, lengths = built(), (10, 4, 14, 1)
    ids = drawn(NEXT_ITEM, list(lengths))
    logits, users = model(None, keyed(ids)), model.users(model.embeddings(keyed(ids)))
    item, begin = model.embeddings.embeddings["item"].weight, 0
    assert logits.shape == (sum(lengths), 2) and users.shape == (4, D)
    for sample, length in enumerate(lengths):
        hidden = by_hand(model, ids, sample)
        scores = [math.sqrt(D) * (hidden * item[torch.tensor(ids[name][sample])]).sum(1) for name in ("positive", "negative")]
        torch.testing.assert_close(logits[begin : begin + length], torch.stack(scores, dim=1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(users[sample], math.sqrt(D) * hidden[-1], rtol=1e-4, atol=1e-5)
        begin += length


def test_a_place_sees_nothing_later_and_no_other_sample() -> None:
    model, ids = built(), drawn(NEXT_ITEM, [11, 3])
    first = model(None, keyed(ids))
    for changed in range(11):
        other = {name: [list(sample) for sample in samples] for name, samples in ids.items()}
        other["item"][0][changed] = ids["item"][0][changed] % 29 + 1
        after = model(None, keyed(other))
        assert torch.equal(after[:changed], first[:changed]) and torch.equal(after[11:], first[11:])
        assert not torch.allclose(after[changed], first[changed])


def test_a_long_history_is_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three rows, the last of them cut short, give what one block of all rows gives. So do gradients."""
    found = []
    for rows in (256, 3):
        monkeypatch.setattr(pointwise, "ROWS_AT_ONCE", rows)
        model = built().double()
        logits = model(None, keyed(drawn(NEXT_ITEM, [11, 1, 8])))
        logits.square().sum().backward()
        found.append([logits, *(p.grad for p in model.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)


def test_company_and_empty_histories_change_nothing() -> None:
    model, lengths = built(), [2, 9, 1, 12]
    ids = drawn(NEXT_ITEM, lengths)
    whole = model(None, keyed({name: [*samples, []] for name, samples in ids.items()}))
    for i, begin in enumerate((0, 2, 11, 12)):
        alone = model(None, keyed({name: [samples[i]] for name, samples in ids.items()}))
        torch.testing.assert_close(alone, whole[begin : begin + lengths[i]], rtol=1e-5, atol=1e-6)
    (model(None, keyed({name: [[], []] for name in ids})).sum() * 0.0).backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("embeddings."))


def test_every_weight_has_a_finite_gradient_that_is_right() -> None:
    model = built().double()
    ids = keyed(drawn(NEXT_ITEM, [5, 0, 3]))
    loss = model(None, ids).square().sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    for weight in (model.blocks[0].bias.weight, model.blocks[1].project.weight, model.place.weight):
        step = torch.zeros_like(weight)
        step.view(-1)[1] = 1e-6
        with torch.no_grad():
            weight += step
            above = model(None, ids).square().sum()
            weight -= 2 * step
            below = model(None, ids).square().sum()
            weight += step
        assert float(weight.grad.view(-1)[1]) == pytest.approx(float((above - below) / 2e-6), rel=1e-4, abs=1e-6)


def test_it_learns_what_follows_what() -> None:
    """Histories in which each item says what the next is: popularity, uniform, tells nothing of it."""
    items = 40
    tables = (Table("item", items + 1, 16, ("item", "positive", "negative"), "none"),)
    model = built(tables, 16, attention_dim=8, linear_dim=8, blocks=1)
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=5e-3), torch.Generator().manual_seed(3)

    def batch() -> dict[str, list[list[int]]]:
        first = torch.randint(items, (64,), generator=generator)
        walk = (first[:, None] * 1 + torch.arange(9) * 7) % items + 1
        wrong = torch.randint(1, items + 1, (64, 8), generator=generator)
        return {"item": walk[:, :8].tolist(), "positive": walk[:, 1:].tolist(), "negative": wrong.tolist()}

    for _ in range(150):
        logits = model(None, keyed(batch()))
        loss = torch.nn.functional.softplus(-logits[:, 0]).mean() + torch.nn.functional.softplus(logits[:, 1]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = batch()
    scores = model.users(model.embeddings(keyed(ids))) @ model.embeddings.embeddings["item"].weight[1:].T
    targets = torch.tensor([row[-1] - 1 for row in ids["positive"]])
    assert (scores.argsort(1, descending=True)[:, :3] == targets[:, None]).any(1).float().mean() > 0.9  # by chance 0.075


def test_its_cost_is_counted_without_weights() -> None:
    model = HSTU(**{"embedding_dim": D, "objective": "next_item"} | SIZES).build(ModelInputs(NEXT_ITEM, 0, torch.device("meta")))
    cost = describe(model, 0, {name: 6.0 for table in NEXT_ITEM for name in table.features})
    assert cost.forward_flops_per_sample > 2 * 6 * sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear)) * 0.9
    assert cost.dense_parameters == sum(p.numel() for name, p in model.named_parameters() if not name.startswith("embeddings."))


@pytest.mark.parametrize(
    ("tables", "changes", "message"),
    [
        (NEXT_ITEM, {"objective": "click"}, "model.objective"),
        (NEXT_ITEM, {"heads": 0}, "model.heads"),
        (NEXT_ITEM, {"dropout": 1.0}, "model.dropout"),
        (CLICK, {}, "data=movielens"),
    ],
)
def test_what_cannot_be_is_one_line(tables: tuple[Table, ...], changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_some_keys(changes, "model", HSTU)
        built(tables, **changes)


def test_a_time_bias_is_added_by_buckets_of_the_time_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop over pairs, in blocks of any size; a bias of zeros is none."""
    model, lengths = built(time_bias=True), [5, 3]
    ids, times = drawn(NEXT_ITEM, lengths), torch.tensor([10, 10, 70, 4000, 10**8, -50, 0, 86400])
    events = Events(times, torch.zeros(8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    queries, keys, values = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(1))
    places = Places.of(torch.tensor(lengths), torch.device("cpu"))
    bias, of_times = torch.randn(3, generator=torch.Generator().manual_seed(2)), torch.linspace(-2, 2, 128)
    expected = torch.zeros(8, 4)
    for row in range(8):
        for other in range(0 if row < 5 else 5, row + 1):
            bucket = min(127, int(math.log(max(1, abs(int(times[row] - times[other])))) / 0.301 + 1e-6))
            score = queries[row] @ keys[other] + bias[min(row - other, 2)] + of_times[bucket]
            expected[row] += score * torch.sigmoid(score) / 7 * values[other]
    for at_once in (256, 2):
        monkeypatch.setattr("recsys_lab.models.pointwise.ROWS_AT_ONCE", at_once)
        found = attend(queries, keys, values, places, places.groups(places.lengths), 1, 7, bias, TimeBias(times, of_times))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        first = model(events, keyed(ids))
        for block in model.blocks:
            block.of_times.weight.zero_()
        without = model(events, keyed(ids))
        model.time_bias = False
        torch.testing.assert_close(without, model(None, keyed(ids)))
    assert not torch.allclose(first, without)
    with pytest.raises(UserError, match="model.time_bias"):
        built(time_bias=True)(None, keyed(ids))
