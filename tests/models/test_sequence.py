"""The sequence model: what each place may see, that padding is nothing, and its formulas written again."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import gelu

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.jagged import Places
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.sequence.network import SequenceNetwork
from recsys_lab.models.workload import describe
from recsys_lab.tables import Table
from tests.models.sequences import CLICK, KINDS, NEXT_ITEM, SETTINGS, D, built, drawn, keyed
from tests.some_keys import check_some_keys

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@settings(max_examples=50)
@given(LENGTHS)
def test_packing_undoes_padding(lengths: list[int]) -> None:
    places = Places.of(torch.tensor(lengths), torch.device("cpu"))
    rows = torch.randn(sum(lengths), 3)
    rectangle = places.padded(rows)
    assert rectangle.shape == (len(lengths), max(1, *lengths), 3)
    assert torch.equal(places.packed(rectangle), rows)
    assert torch.equal(places.is_row(), torch.tensor([[t < n for t in range(rectangle.shape[1])] for n in lengths]))
    assert not rectangle[~places.is_row()].any()
    parts = rows.split(lengths)
    assert torch.equal(places.last(rows), torch.stack([part[-1] if len(part) else torch.zeros(3) for part in parts]))
    assert places.to_end.tolist() == [n - 1 - t for n in lengths for t in range(n)]


@settings(max_examples=50)
@given(LENGTHS)
def test_groups_have_every_row_once_and_little_padding(lengths: list[int]) -> None:
    groups = Places.of(torch.tensor(lengths), torch.device("cpu")).groups(torch.tensor(lengths))
    assert sorted(i for own, _ in groups for i in own.tolist()) == list(range(sum(lengths)))
    for own, places in groups:
        assert len(own) == int(places.lengths.sum()) and places.longest <= max(8, 2 * int(places.lengths.min()))


def test_a_place_sees_nothing_later() -> None:
    model = built()
    ids = drawn(NEXT_ITEM, [11, 3])
    first = model(None, keyed(ids))
    assert first.shape == (14, 2)
    for changed in range(11):
        other = {name: [list(sample) for sample in samples] for name, samples in ids.items()}
        for name in ("item", "category", "time"):
            other[name][0][changed] = ids[name][0][changed] % 4 + 1
        after = model(None, keyed(other))
        assert torch.equal(after[:changed], first[:changed])
        assert not torch.allclose(after[changed], first[changed])
        assert torch.equal(after[11:], first[11:])  # the other sample


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_company_change_nothing(kind: str) -> None:
    """A sample gives the same alone, among longer ones, and before rows without any id, which the last batch is filled up with."""
    tables, changes = KINDS[kind]
    model = built(tables, **changes)
    lengths = [2, 9, 1, 12]
    ids = drawn(tables, lengths)
    whole = model(None, keyed(ids))
    starts = [sum(lengths[:i]) for i in range(5)] if kind == "next_item" else range(5)
    for i in range(4):
        alone = model(None, keyed({name: [samples[i]] for name, samples in ids.items()}))
        torch.testing.assert_close(alone, whole[starts[i] : starts[i + 1]], rtol=1e-5, atol=1e-6)
    filled = model(None, keyed({name: [*samples, [], []] for name, samples in ids.items()}))
    torch.testing.assert_close(filled[: len(whole)], whole, rtol=1e-5, atol=1e-6)
    assert torch.isfinite(filled).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_nothing_keeps_the_graph_whole(kind: str) -> None:
    tables, changes = KINDS[kind]
    model = built(tables, **changes)
    out = model(None, keyed({name: [[], []] for table in tables for name in table.features}))
    (out.sum() * 0.0).backward()
    dense = [p for name, p in model.named_parameters() if not name.startswith("embeddings.")]
    assert all(p.grad is not None and not p.grad.any() for p in dense)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_where_histories_are_empty(kind: str) -> None:
    tables, changes = KINDS[kind]
    model = built(tables, **changes)
    model(None, keyed(drawn(tables, [0, 3, 0]))).sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def rows_by_hand(model: SequenceNetwork, ids: dict, names: tuple[str, ...], sample: int) -> torch.Tensor:
    """The history of one sample [L, D] before attention."""
    table = {name: t.name for t in (*NEXT_ITEM, *CLICK) for name in t.features}
    total = sum(model.embeddings.embeddings[table[n]].weight[torch.tensor(ids[n][sample])] for n in names)
    places = torch.arange(len(ids[names[0]][sample])).flip(0).clamp(max=model.place.num_embeddings - 1)
    return layer_norm(total * math.sqrt(D) + model.place.weight[places], model.normalise)


def layer_norm(x: torch.Tensor, module: torch.nn.LayerNorm) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + module.eps) * module.weight + module.bias


def linear(x: torch.Tensor, module: torch.nn.Linear) -> torch.Tensor:
    return torch.einsum("ld,od->lo", x, module.weight) + module.bias


def transformer_by_hand(model: SequenceNetwork, rows: torch.Tensor) -> torch.Tensor:
    """One sample, head by head, place by place."""
    heads = SETTINGS["heads"]
    for block in model.blocks:
        projected = linear(layer_norm(rows, block.before_attention), block.query_key_value)
        query, key, value = (part.view(len(rows), heads, D // heads) for part in projected.split(D, dim=1))
        attended = torch.zeros(len(rows), heads, D // heads)
        for place in range(len(rows)):
            for head in range(heads):
                scores = torch.stack([(query[place, head] * key[t, head]).sum() / math.sqrt(D // heads) for t in range(place + 1)])
                attended[place, head] = (torch.softmax(scores, 0)[:, None] * value[: place + 1, head]).sum(0)
        rows = rows + linear(attended.flatten(1), block.mix)
        rows = rows + linear(gelu(linear(layer_norm(rows, block.before_wide), block.wide)), block.narrow)
    return layer_norm(rows, model.hidden)


def test_next_item_is_the_formula() -> None:
    model = built()
    ids = drawn(NEXT_ITEM, [10, 4, 14, 1])
    logits, users = model(None, keyed(ids)), model.users(model.embeddings(keyed(ids)))
    item, begin = model.embeddings.embeddings["item"].weight, 0
    for sample, length in enumerate((10, 4, 14, 1)):
        hidden = transformer_by_hand(model, rows_by_hand(model, ids, ("item", "category", "time"), sample))
        expected = math.sqrt(D) * torch.stack(
            [(hidden * item[torch.tensor(ids[n][sample])]).sum(1) for n in ("positive", "negative")], dim=1
        )
        torch.testing.assert_close(logits[begin : begin + length], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(users[sample], math.sqrt(D) * hidden[-1], rtol=1e-4, atol=1e-5)
        begin += length


@pytest.mark.parametrize("attention", ["transformer", "pairwise"])
def test_click_is_the_formula(attention: str) -> None:
    model = built(CLICK, objective="click", attention=attention)
    ids = drawn(CLICK, [10, 4, 1])
    logits = model(None, keyed(ids))
    tables = {name: table.weight for name, table in model.embeddings.embeddings.items()}
    for sample in range(3):
        rows = rows_by_hand(model, ids, ("item", "category"), sample)
        target = tables["item"][ids["candidate"][sample]] + tables["category"][ids["candidate_category"][sample]]
        target = layer_norm(target * math.sqrt(D), model.normalise)
        if attention == "transformer":
            interest = transformer_by_hand(model, rows)[-1:]
        else:
            question = linear(target, model.attention.question)
            interest = torch.softmax(question @ rows.T / math.sqrt(D), dim=1) @ rows
        x = torch.cat([target, interest, target * interest], dim=1)
        layers = [m for m in model.over if isinstance(m, torch.nn.Linear)]
        expected = linear(torch.relu(linear(x, layers[0])), layers[1])[0, 0]
        torch.testing.assert_close(logits[sample], expected, rtol=1e-4, atol=1e-5)


def test_without_a_candidate_the_last_of_the_history_is_the_target() -> None:
    tables = (Table("cat_0", 20, D, ("cat_0",), "none"), Table("cat_1", 20, D, ("cat_1",), "none"))
    model = built(tables, objective="click", attention="pairwise")
    ids = drawn(tables, [5, 2])
    logits = model(None, keyed(ids))
    assert logits.shape == (2,) and model.over[0].in_features == 5 * D
    ids["cat_0"][0][-1] = ids["cat_0"][0][-1] % 19 + 1
    assert not torch.isclose(model(None, keyed(ids))[0], logits[0])


def test_dropout_rests_in_evaluation() -> None:
    model = built(dropout=0.5)
    ids = keyed(drawn(NEXT_ITEM, [7, 2]))
    torch.manual_seed(1)
    first = model(None, ids)
    torch.manual_seed(1)
    assert torch.equal(model(None, ids), first)
    assert not torch.equal(model(None, ids), first)
    model.eval()
    torch.testing.assert_close(model(None, ids), built()(None, ids))


def test_a_longer_history_than_the_places_is_read() -> None:
    model = built(max_length=3)
    assert torch.isfinite(model(None, keyed(drawn(NEXT_ITEM, [11])))).all()


@pytest.mark.parametrize(
    ("tables", "changes", "message"),
    [
        (NEXT_ITEM, {"objective": "both"}, "model.objective"),
        (NEXT_ITEM, {"attention": "none"}, "model.attention"),
        (NEXT_ITEM, {"attention": "pairwise"}, "model.attention"),
        (NEXT_ITEM, {"heads": 3}, "model.heads"),
        (NEXT_ITEM, {"max_length": 0}, "model.max_length"),
        (NEXT_ITEM, {"over_layers": [3]}, "model.over_layers"),
        (NEXT_ITEM, {"dropout": 1.0}, "model.dropout"),
        (CLICK, {}, "needs the feature positive.*data=interactions"),
        ((Table("C1", 9, D, ("C1",)),), {"objective": "click"}, "reads sequences; given pooling sum"),
    ],
)
def test_what_cannot_be_built_is_the_users_mistake(tables, changes, message) -> None:
    with pytest.raises(UserError, match=message):
        check_some_keys(changes, "model", Sequence)
        Sequence(**SETTINGS | changes).build(ModelInputs(tables, 0, torch.device("meta")))


def test_dense_values_are_refused() -> None:
    with pytest.raises(UserError, match="no dense values"):
        Sequence(**SETTINGS).build(ModelInputs(NEXT_ITEM, 13, torch.device("meta")))


@pytest.mark.parametrize("kind", KINDS)
def test_cost_by_hand(kind: str) -> None:
    """Twice the multiply-adds of every layer on the rows it sees, and those of attention on the square, or the line, of a sample."""
    tables, changes = KINDS[kind]
    model = Sequence(**SETTINGS | changes).build(ModelInputs(tables, 0, torch.device("meta")))
    length = 6
    cost = describe(model, 0, {name: length for table in tables for name in table.features if "candidate" not in name})
    transformer = length * sum(m.weight.numel() for m in model.blocks.modules() if isinstance(m, torch.nn.Linear))
    over = 0 if model.over is None else sum(m.weight.numel() for m in model.over if isinstance(m, torch.nn.Linear))
    attention = len(model.blocks) * 2 * length * length * D
    pairwise = 0 if model.attention is None else D * D + 2 * length * D
    assert cost.forward_flops_per_sample == 2 * (transformer + attention + over + pairwise)
    assert cost.backward_flops_per_sample == 2 * cost.forward_flops_per_sample
    assert cost.dense_parameters == sum(p.numel() for n, p in model.named_parameters() if not n.startswith("embeddings."))
    assert cost.embedding_rows == sum(table.rows for table in tables)
