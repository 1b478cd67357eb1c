"""DLRMv4: its sizes, its formulas written again, the candidate-only last layer, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn.functional import layer_norm, linear, silu
from torchrec.sparse.jagged_tensor import JaggedTensor

from recsys_lab.data.batch import Batch, Events
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dlrm_v4 import CANDIDATE, CONTEXT, DLRMV4, HISTORY
from recsys_lab.models.dlrm_v4.network import DLRMV4Network
from recsys_lab.models.dlrm_v4.work import formula_flops, left_out_flops, saved_flops
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.workload import describe
from recsys_lab.tables import Table
from recsys_lab.train.objective import objective_of
from tests.models.inputs import CONF
from tests.models.sequences import keyed

#: By table, of Yambda-5b.
ROWS = {
    "item_id": 9_390_624,
    "artist_id": 1_293_395,
    "album_id": 3_367_692,
    "uid": 1_000_001,
    "user_x_artist": 100_000_000,
    "user_x_album": 40_000_000,
    "user_x_hour": 24_000_000,
    "item_x_hour": 40_000_000,
    "artist_x_hour": 32_000_000,
    "user_x_is_organic": 2_000_000,
    "user_x_artist_x_hour": 40_000_000,
}
_YAML: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(CONF / "dlrm_v4.yaml"))  # type: ignore[assignment]
FULL: dict[str, Any] = {key: value for key, value in _YAML.items() if key not in ("_target_", "defaults")}
SMALL: dict[str, Any] = FULL | {
    "embedding_dim": 8,
    "max_length": 40,
    "layers": 2,
    "heads": 2,
    "attention_dim": 3,
    "linear_dim": 5,
    "hidden": 6,
    "action_dim": 2,
    "places": 14,
    "time_buckets": 9,
    "input_dropout": 0.0,
    "dropout": 0.0,
}


def tables(dim: int, rows: Mapping[str, int] | None = None) -> tuple[Table, ...]:
    readers = {name: (name, own) for name, own in zip(HISTORY, CANDIDATE)}
    sizes = dict.fromkeys(ROWS, 30) if rows is None else rows
    return tuple(Table(name, count, dim, readers.get(name, (name,)), "none") for name, count in sizes.items())


def built(device: str = "cpu", **changes: Any) -> DLRMV4Network:
    options = SMALL | changes
    own = tables(options["embedding_dim"])
    model = DLRMV4(**options).build(ModelInputs(own, 0, torch.device(device)))
    if device == "cpu":
        initialise_dense(model, 1, torch.device("cpu"))
        fill_tables(model.embeddings, own, 1)
    return model  # type: ignore[return-value]


def drawn(lengths: list[int], seed: int = 0) -> tuple[Events, dict[str, list[list[int]]]]:
    """Histories of these lengths, one to 700 seconds apart. The question comes with the last event, or at second 90 where there is none."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(0, 30, (count,), generator=generator).tolist()

    names = [name for table in tables(8) for name in table.features]
    samples = {name: [ids(n if name in HISTORY else 1) for n in lengths] for name in names}
    times = [torch.randint(1, 700, (n,), generator=generator).cumsum(0) + 50_000 for n in lengths]
    asked = torch.tensor([int(own[-1]) if len(own) else 90 for own in times])
    actions = torch.randint(0, 8, (sum(lengths),), generator=generator, dtype=torch.uint8)
    return Events(torch.cat(times), actions, asked), samples


def normed(rows: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    return layer_norm(rows, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def by_hand_mlp(rows: Tensor, mlp: torch.nn.Sequential) -> Tensor:
    inner = linear(rows, mlp[0].weight, mlp[0].bias)
    inner = inner * torch.sigmoid(normed(inner, mlp[1]))
    return normed(linear(inner, mlp[2].weight, mlp[2].bias), mlp[3])


def by_hand(model: DLRMV4Network, events: Events, ids: dict[str, list[list[int]]], sample: int, longest: int) -> Tensor:
    """One sample, token by token and head by head."""
    options, reader = model.options, {name: t.name for t in tables(8) for name in t.features}
    row = {name: model.embeddings.embeddings[reader[name]].weight[torch.tensor(own[sample], dtype=torch.long)] for name, own in ids.items()}
    n, before = len(ids["item_id"][sample]), sum(len(own) for own in ids["item_id"][:sample])
    asked = int(events.asked[sample])
    times, actions = events.times[before : before + n].tolist(), events.actions[before : before + n].tolist()
    t, dim = model.tokens, options.embedding_dim
    tokens = []
    for place, name in enumerate(CONTEXT):
        vector = row[name][0] @ t.context.weight[place] + t.context.bias[place]
        tokens.append((vector, place, 0))
    for event in range(n + 1):
        candidate = event == n
        item, artist, album = (row[(CANDIDATE if candidate else HISTORY)[part]][0 if candidate else event] for part in range(3))
        if candidate:
            action = t.actions.of_candidate
        else:
            action = torch.cat([t.actions.of_bit[bit] * (actions[event] >> bit & 1) for bit in range(3)])
        vector = by_hand_mlp(item, t.content) + by_hand_mlp(torch.cat([artist, album]), t.side) + by_hand_mlp(action, t.action)
        tokens.append((vector, min(8 + n - event, options.places - 1), asked if candidate else times[event]))
    rows = torch.stack(
        [
            vector * math.sqrt(dim)
            + t.place.weight[place]
            + t.time.weight[min(math.isqrt(max(asked - time, 0) // 60), options.time_buckets)]
            for vector, place, time in tokens
        ]
    )
    heads, qk, v = options.heads, options.attention_dim, options.linear_dim
    divisor = longest if options.divisor == "longest" else options.max_length
    for layer in model.layers:
        x = normed(rows, layer.before)
        gate, queries = linear(x, layer.asks.weight, layer.asks.bias).split([heads * v, heads * qk], dim=1)
        values, keys = linear(x, layer.tells.weight, layer.tells.bias).split([heads * v, heads * qk], dim=1)
        gate, attended = silu(gate), torch.zeros(len(rows), heads * v, dtype=rows.dtype)
        for i in range(len(rows)):
            for head in range(heads):
                q, k = (part[:, head * qk : (head + 1) * qk] for part in (queries, keys))
                for j in range(i + 1):
                    weight = silu(q[i] @ k[j] / math.sqrt(qk)) / divisor
                    attended[i, head * v : (head + 1) * v] += weight * values[j, head * v : (head + 1) * v]
        rows = rows + linear(torch.cat([gate, attended, normed(attended, layer.after) * gate], dim=1), layer.mix.weight)
    turns = [asked // 3600 % 24 / 24 * 6.28, asked // 86400 % 7 / 7 * 6.28]
    clock = torch.tensor([*map(math.cos, turns), *map(math.sin, turns)], dtype=rows.dtype)
    user = normed(linear(torch.cat([rows[-1], clock]), model.user.linear.weight, model.user.linear.bias), model.user.norm)
    item = by_hand_mlp(torch.cat([row[name][0] for name in CANDIDATE]), model.item)
    inner = linear(user * item, model.head[0].weight, model.head[0].bias)
    return linear(inner * torch.sigmoid(normed(inner, model.head[1])), model.head[2].weight, model.head[2].bias)[0]


@pytest.fixture(scope="module")
def full() -> DLRMV4Network:
    return DLRMV4(**FULL).build(ModelInputs(tables(512, ROWS), 0, torch.device("meta")))  # type: ignore[return-value]


def test_it_is_as_large_as_the_reference(full: DLRMV4Network) -> None:
    dense = {name: p.numel() for name, p in full.named_parameters() if not name.startswith("embeddings.")}
    parts = {
        "tokens.context.": 2_101_248,
        "tokens.content.": 264_448,
        "tokens.side.": 395_520,
        "tokens.action": 139_568,
        "tokens.place.": 4_194_304,
        "tokens.time.": 1_049_088,
        "layers.": 5_517_312,
        "user.": 265_728,
        "item.": 1_051_648,
        "head.": 264_193,
    }
    assert {part: sum(count for name, count in dense.items() if name.startswith(part)) for part in parts} == parts
    assert sum(dense.values()) == sum(parts.values()) == 15_243_057
    assert sum(table.weight_bytes for table in tables(512, ROWS)) == 600_169_906_176


def test_its_work_is_the_reference_formula(full: DLRMV4Network) -> None:
    """315.680 GFLOP for 4,096 tokens; twice as much attention and the rest beside it for two lengths of the same mean."""
    options = full.options
    assert formula_flops(options, 4096, 4096**2) / 1e9 == pytest.approx(315.680, abs=5e-4)
    assert formula_flops(options, 2664, 2664**2) / 1e9 == pytest.approx(164, abs=0.5)
    assert formula_flops(options, 2191, 2191**2) / 1e9 == pytest.approx(124, abs=0.5)


def test_what_the_formula_leaves_out_is_what_the_model_does(full: DLRMV4Network) -> None:
    """Linear layers as torch counts them on the model itself: MLPs of every event, the first product once more, and the ends."""
    events, options = 2663, replace(full.options, last_layer="all")
    left_out = left_out_flops(options, events)
    assert left_out["mlps"] / (events + 1) == pytest.approx(4.755e6, rel=1e-3) and left_out["mlps"] / 1e9 == pytest.approx(12.7, abs=0.05)
    assert left_out["recomputed"] == pytest.approx(3 * 2 * (events + 9) * 512 * 2048)
    assert left_out["ends"] / 1e9 == pytest.approx(0.022, abs=0.001)
    for recompute in (True, False):
        model = DLRMV4(**FULL | {"last_layer": "all", "recompute": recompute}).build(
            ModelInputs(tables(512, ROWS), 0, torch.device("meta"))
        )
        cost = describe(model, 0, {"item_id": events})
        tokens = events + 9
        attention = 7 / 2 * tokens**2 * 4 * 256 * 3
        blocks = 1 + 256 / tokens  # of the causal half, in blocks of 256 rows
        by_formula = formula_flops(options, tokens, 0) + attention * blocks + left_out["mlps"] + left_out["ends"]
        by_formula += left_out["recomputed"] if recompute else 0
        assert cost.forward_flops_per_sample + cost.backward_flops_per_sample == pytest.approx(by_formula, rel=2e-3)


def test_the_last_layer_for_the_candidate_saves_what_is_said(full: DLRMV4Network) -> None:
    """Half of its first product, all of its second but for one row, and nearly all of its attention."""
    events, tokens = 2663, 2672
    saved, whole = saved_flops(full.options, tokens, tokens**2), formula_flops(full.options, tokens, tokens**2)
    assert saved / (whole / 3) == pytest.approx(1 - 6 * tokens * 512 * 1024 / (whole / 3), rel=2e-3)
    assert saved_flops(replace(full.options, last_layer="all"), tokens, tokens**2) == 0
    cost, blocks = describe(full, 0, {"item_id": events}), 1 + 256 / tokens
    attention = 7 / 2 * tokens**2 * 4 * 256 * 2
    linear_part = formula_flops(full.options, tokens, 0) - saved_flops(full.options, tokens, 0)
    by_formula = linear_part + attention * blocks + sum(left_out_flops(full.options, events).values())
    assert cost.forward_flops_per_sample + cost.backward_flops_per_sample == pytest.approx(by_formula, rel=2e-3)


@pytest.mark.parametrize("divisor", ["longest", "max_length"])
@pytest.mark.parametrize("last_layer", ["candidate", "all"])
def test_the_model_is_its_formulas(divisor: str, last_layer: str) -> None:
    model = built(divisor=divisor, last_layer=last_layer).double()
    lengths = [17, 0, 4, 9]
    events, ids = drawn(lengths)
    logits = model(events, keyed(ids))
    for sample in range(len(lengths)):
        torch.testing.assert_close(logits[sample], by_hand(model, events, ids, sample, max(lengths) + 9), rtol=1e-6, atol=1e-9)


def test_a_last_layer_for_the_candidate_alone_changes_nothing() -> None:
    """Loss and every gradient, with and without recomputation, which changes no bit."""
    events, ids = drawn([12, 3, 0, 21])
    found = []
    for last_layer, recompute in (("all", False), ("candidate", False), ("candidate", True)):
        model = built(last_layer=last_layer, recompute=recompute).double()
        logits = model(events, keyed(ids))
        logits.square().sum().backward()
        found.append([logits, *(p.grad for p in model.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)
    assert all(torch.equal(one, other) for one, other in zip(found[1], found[2]))


def test_a_sample_does_not_depend_on_its_company_nor_on_padding() -> None:
    lengths = [9, 2, 14]
    events, ids = drawn(lengths)
    model = built(divisor="max_length")
    whole = model(events, keyed(ids))
    padded = model(
        Events(events.times, events.actions, torch.cat([events.asked, torch.zeros(1, dtype=torch.int64)])),
        keyed({name: [*own, []] for name, own in ids.items()}),
    )
    torch.testing.assert_close(padded[:3], whole, rtol=1e-5, atol=1e-6)
    assert padded.isfinite().all()
    for sample, (start, n) in enumerate(zip((0, 9, 11), lengths)):
        alone = Events(events.times[start : start + n], events.actions[start : start + n], events.asked[sample : sample + 1])
        torch.testing.assert_close(
            model(alone, keyed({name: [own[sample]] for name, own in ids.items()}))[0], whole[sample], rtol=1e-4, atol=1e-6
        )


def test_the_candidate_does_not_see_its_label_nor_events_their_order_of_ids() -> None:
    """All that is read of an event reaches the logit: item, artist, album, action, time."""
    events, ids = drawn([6])
    model = built().double()
    first = model(events, keyed(ids))
    for name in (*CONTEXT, *HISTORY, *CANDIDATE):
        changed = {other: [list(own[0])] for other, own in ids.items()}
        changed[name][0][0] = (changed[name][0][0] + 1) % 30
        assert not torch.equal(model(events, keyed(changed)), first), name
    for bit in (1, 2, 4):
        assert not torch.equal(model(replace(events, actions=events.actions ^ bit), keyed(ids)), first)
    assert not torch.equal(model(replace(events, times=events.times - 3600), keyed(ids)), first)


def test_loss_at_the_start_and_first_weights() -> None:
    """0.2 ln 2, with all 15 M weights and rows of the full tables; a short history does as well."""
    model = DLRMV4(**FULL).build(ModelInputs(tables(512), 0, torch.device("meta")))
    initialise_dense(model, 1, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    bounds = {name: rows**-0.5 for table, rows in ROWS.items() for name in next(t for t in tables(8) if t.name == table).features}
    events, ids = drawn([20] * 64)

    def rows(name: str) -> JaggedTensor:
        lengths = torch.tensor([len(own) for own in ids[name]])
        values = (torch.rand(int(lengths.sum()), 512, generator=generator) * 2 - 1) * bounds[name]
        return JaggedTensor(values, lengths=lengths)

    labels = (torch.arange(64) % 2).float()
    with torch.no_grad():
        logits = model.predict(events, {name: rows(name) for name in ids})
    batch = Batch(None, keyed(ids), labels, 64, 64, events)
    loss = objective_of("click", None, 0, loss_weight=model.loss_weight).loss(logits, batch, 1)  # type: ignore[arg-type]
    assert float(loss) == pytest.approx(0.1386, rel=1e-2)
    layer = model.layers[0]
    bound = math.sqrt(6 / (512 + 2048))
    for weight in (layer.asks.weight, layer.tells.weight):
        assert weight.shape == (1024, 512) and bound * 0.999 < weight.abs().max() <= bound
    bound = math.sqrt(6 / (1536 + 512))
    assert layer.mix.weight.shape == (512, 1536) and bound * 0.999 < layer.mix.weight.abs().max() <= bound
    assert float(model.tokens.context.weight.std()) == pytest.approx(math.sqrt(2 / 1024), rel=1e-2)
    assert float(model.tokens.content[0].weight.std()) == pytest.approx(math.sqrt(2 / 768), rel=2e-2)
    assert model.tokens.place.weight.abs().max() <= 8192**-0.5 and model.tokens.time.weight.abs().max() <= 2049**-0.5


def test_every_weight_has_a_finite_gradient() -> None:
    model = built()
    events, ids = drawn([5, 3])
    model(events, keyed(ids)).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_history_longer_than_the_cap_is_one_line() -> None:
    events, ids = drawn([5, 32])
    with pytest.raises(UserError, match="model.max_length: a history is longer than the model.s cap; given 32 events"):
        built()(events, keyed(ids))


def test_other_data_are_one_line() -> None:
    with pytest.raises(UserError, match="the feature uid is needed.*data=yambda"):
        DLRMV4(**SMALL).build(ModelInputs((Table("item", 30, 8, ("item",), "none"),), 0, torch.device("meta")))
