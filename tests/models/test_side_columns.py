"""Side columns in the models: what is added to a history's rows, that no later one is seen, and that they teach what items cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from recsys_lab.data.batch import Events
from recsys_lab.errors import UserError
from recsys_lab.models.history import history_of, placed_rows
from recsys_lab.models.workload import describe
from recsys_lab.tables import Table
from tests.models.sequences import D, drawn, keyed
from tests.models.sequences import built as sequence
from tests.models.test_hstu import built as hstu

#: An event's rating, an item's genres and a user's age.
TABLES = (
    Table("item", 30, D, ("item", "positive", "negative"), "none"),
    Table("side_rating", 6, D, ("side_rating",), "none"),
    Table("side_genres", 9, D, ("side_genres",), "none"),
    Table("user_age", 7, D, ("user_age",), "none"),
)
LENGTHS = [4, 0, 2, 7]
BUILT = {"sequence": sequence, "hstu": hstu}


def batch(seed: int = 0):
    """Ids of `LENGTHS`, with one to three genres an item and one age a user, and the batch's events."""
    generator = torch.Generator().manual_seed(seed)
    ids = drawn(TABLES, LENGTHS, seed)
    counts = torch.randint(1, 4, (sum(LENGTHS),), generator=generator)
    each = [part.sum().item() for part in counts.split(LENGTHS)]
    ids["side_genres"] = [torch.randint(0, 9, (int(n),), generator=generator).tolist() for n in each]
    ids["user_age"] = [[age] for age in (1, 6, 5, 6)]
    none = torch.zeros(sum(LENGTHS), dtype=torch.int64)
    return ids, Events(none, none.to(torch.uint8), torch.zeros(len(LENGTHS), dtype=torch.int64), {"side_genres": counts})


@pytest.mark.parametrize("kind", BUILT)
def test_a_row_is_the_sum_with_the_mean_of_its_list(kind: str) -> None:
    model = BUILT[kind](TABLES)
    ids, events = batch()
    features = history_of([name for table in TABLES for name in table.features])
    assert features == ("item", "side_rating", "side_genres", "user_age")
    rows, _, _ = placed_rows(model.embeddings(keyed(ids)), features, 2.0, model.place, events.counts)
    weights = {name: table.weight for name, table in model.embeddings.embeddings.items()}
    at = 0
    for sample, length in enumerate(LENGTHS):
        genres = iter(ids["side_genres"][sample])
        for place in range(length):
            own = torch.stack([weights["side_genres"][next(genres)] for _ in range(int(events.counts["side_genres"][at]))]).mean(0)
            vectors = [weights["item"][ids["item"][sample][place]], weights["side_rating"][ids["side_rating"][sample][place]]]
            expected = 2.0 * (sum(vectors) + own + weights["user_age"][ids["user_age"][sample][0]])
            torch.testing.assert_close(rows[at], expected + model.place.weight[length - 1 - place], rtol=1e-5, atol=1e-6)
            at += 1
        assert next(genres, None) is None
    assert at == len(rows)


@pytest.mark.parametrize("kind", BUILT)
def test_a_place_sees_no_later_side_value(kind: str) -> None:
    model = BUILT[kind](TABLES).eval()
    ids, events = batch()
    first = model(events, keyed(ids))
    for name in ("side_rating", "side_genres"):
        other = {feature: [list(own) for own in samples] for feature, samples in ids.items()}
        other[name][3][-1] = ids[name][3][-1] % 4 + 1  # of the last item of the last history
        after = model(events, keyed(other))
        assert torch.equal(after[:-1], first[:-1]) and not torch.allclose(after[-1], first[-1]), name
    users = model.users(model.embeddings(keyed(ids)), events)
    assert users.shape == (4, D) and torch.isfinite(users).all()


@pytest.mark.parametrize("kind", BUILT)
def test_all_tables_have_gradients_and_a_price(kind: str) -> None:
    model = BUILT[kind](TABLES)
    ids, events = batch()
    model(events, keyed(ids)).square().sum().backward()
    for name, table in model.embeddings.embeddings.items():
        features = next(table.features for table in TABLES if table.name == name)
        touched = torch.tensor(sorted({i for feature in features for own in ids[feature] for i in own}))
        assert table.weight.grad is not None and table.weight.grad[touched].abs().sum(1).gt(0).all(), name
    lengths = {"item": 6.0, "positive": 6.0, "negative": 6.0, "side_rating": 6.0, "side_genres": 13.0, "user_age": 1.0}
    without = dict.fromkeys(("item", "positive", "negative"), 6.0)
    plain = describe(BUILT[kind](TABLES[:1]).to("meta"), 0, without)
    cost = describe(BUILT[kind](TABLES).to("meta"), 0, lengths)
    assert plain.sequence is not None and cost.sequence is not None
    assert cost.forward_flops_per_sample == plain.forward_flops_per_sample and cost.sequence.moved_bytes[0] > plain.sequence.moved_bytes[0]


@pytest.mark.parametrize("kind", BUILT)
def test_a_category_that_decides_the_next_item_is_learnt_with_the_side_column(kind: str) -> None:
    """The event's category alone says which item comes next; the items of the history are random."""
    items, categories = 24, 6
    tables = (
        Table("item", items + 1, 16, ("item", "positive", "negative"), "none"),
        Table("side_category", categories + 1, 16, ("side_category",), "none"),
    )

    def hits(own: tuple[Table, ...]) -> float:
        options = {"embedding_dim": 16, "blocks": 1} | ({"attention_dim": 8, "linear_dim": 8} if kind == "hstu" else {})
        model = hstu(own, 16, **{k: v for k, v in options.items() if k != "embedding_dim"}) if kind == "hstu" else sequence(own, **options)
        optimizer, generator = torch.optim.Adam(model.parameters(), lr=1e-2), torch.Generator().manual_seed(3)

        def drawn_batch() -> dict[str, list[list[int]]]:
            category = torch.randint(1, categories + 1, (48, 6), generator=generator)
            item = torch.randint(1, items + 1, (48, 6), generator=generator)
            after = (category - 1) * 4 + 1 + torch.randint(4, (48, 6), generator=generator)
            item[:, 1:] = after[:, :-1]
            wrong = torch.randint(1, items + 1, (48, 6), generator=generator)
            ids = {"item": item, "positive": after, "negative": wrong, "side_category": category}
            return {name: ids[name].tolist() for table in own for name in table.features}

        for _ in range(120):
            logits = model(None, keyed(drawn_batch()))
            loss = torch.nn.functional.softplus(-logits[:, 0]).mean() + torch.nn.functional.softplus(logits[:, 1]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ids = drawn_batch()
        scores = model.eval().users(model.embeddings(keyed(ids))) @ model.embeddings.embeddings["item"].weight[1:].T
        targets = torch.tensor([row[-1] - 1 for row in ids["positive"]])
        return float((scores.argsort(1, descending=True)[:, :4] == targets[:, None]).any(1).float().mean())

    assert hits(tables) > 0.8 > 0.45 > hits(tables[:1])  # by chance 1 / 6


def test_a_time_bias_does_not_take_missing_times_for_times() -> None:
    ids, events = batch()
    model = hstu(TABLES, time_bias=True)
    assert model(events, keyed(ids)).shape == (sum(LENGTHS), 2)
    with pytest.raises(UserError, match="a time bias needs times"):
        model(replace(events, timed=False), keyed(ids))
