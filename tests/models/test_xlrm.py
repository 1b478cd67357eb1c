"""XLRM against its operators written independently, its published class (2 T parameters, 700 MFLOP), and its towers."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.workload import describe
from recsys_lab.models.xlrm import XLRM, XLRMTowers
from recsys_lab.models.xlrm.network import InteractionLayer
from tests.models.inputs import FEATURES, TABLES, D, K, batch, with_towers
from tests.some_keys import check_some_keys

SETTINGS = {
    "embedding_dim": D, "bottom_layers": [6, D], "layers": 2, "vectors": 2, "cross_rank": 3, "mlp_width": 5, "over_layers": [8, 1],
    "tower": XLRMTowers(),
}  # fmt: skip
TOWERS = (("brand", "shop", "day"), ("color",))


def built(towers=(), dense_width=K, device="cpu", **changes):
    model = with_towers(XLRM, TABLES, dense_width, device, towers, **SETTINGS | changes)
    if device == "cpu":
        initialise_dense(model, 1, torch.device("cpu"))
        fill_tables(model.embeddings, TABLES, 1)
    return model


def layer_by_hand(layer, vectors):
    """One sample: a list of [N]."""
    x = torch.stack([(v - v.mean()) / torch.sqrt(v.var(unbiased=False) + 1e-5) for v in vectors])
    dots = layer.dots(torch.stack([a @ b for a, b in combinations(x, 2)]))
    down, up = layer.cross.down[0].weight, layer.cross.up[0]
    crossed = (x.flatten() * (up.weight @ down @ x.flatten() + up.bias) + x.flatten()).view_as(x)
    perceived = layer.mlp(x.flatten())
    query, key, value = (
        x @ part.T + bias for part, bias in zip(layer.query_key_value.weight.chunk(3), layer.query_key_value.bias.chunk(3))
    )
    attended = torch.softmax(query @ key.T / layer.dim**0.5, dim=1) @ value
    mixed = [m.weight @ y + m.bias[:, None] for m, y in ((layer.cross_mix, crossed), (layer.attention_mix, attended))]
    outputs = torch.cat([dots.view(-1, layer.dim), mixed[0], perceived.view(-1, layer.dim), mixed[1]])
    return list(outputs + layer.mix.weight @ x)


def by_hand(model, dense, pooled, sample):
    vectors = [pooled[feature][sample] for feature in FEATURES]
    if model.tower_features:
        first, alone = model.tower_modules
        of_first = layer_by_hand(first.interact, [pooled[feature][sample] for feature in TOWERS[0]])
        sent = [first.project.weight @ v + first.project.bias for v in of_first]
        sent.append(alone.project.weight @ pooled["color"][sample] + alone.project.bias)
        joined = torch.nn.functional.pad(torch.cat(sent), (0, -sum(model.tower_widths) % D))
        vectors = list(joined.view(-1, D))
    vectors = [model.bottom(dense[sample]), *vectors]
    for layer in model.layers:
        vectors = layer_by_hand(layer, vectors)
    return model.over(torch.cat(vectors))[0]


@pytest.mark.parametrize("towers", [(), TOWERS])
def test_forward_is_the_operators_stacked(towers):
    model = built(towers)
    dense, sparse = batch(6)
    pooled = model.embeddings(sparse).to_dict()
    logits = model(dense, sparse)
    assert logits.shape == (6,) and logits.std() > 1e-3
    torch.testing.assert_close(logits, torch.stack([by_hand(model, dense, pooled, i) for i in range(6)]), rtol=1e-4, atol=1e-5)


def test_predict_is_its_two_halves():
    model = built(TOWERS)
    dense, sparse = batch(5)
    pooled = model.embeddings(sparse).to_dict()
    outputs = [module(torch.stack([pooled[f] for f in own], dim=1)) for module, own in zip(model.tower_modules, TOWERS)]
    assert model.tower_widths == (4 * 2, 2) == tuple(output.shape[1] for output in outputs)  # of 3 and 1 features of 4, halved
    assert torch.equal(model.predict_from_towers(dense, outputs), model.predict(dense, pooled))


def test_a_tower_keeps_the_operators_of_the_model():
    """Section 5.2.2: the tower module's operators are those of its main interaction. One feature alone has nothing to interact with."""
    model = built(TOWERS)
    assert isinstance(model.tower_modules[0].interact, InteractionLayer)
    assert {name for name, _ in model.tower_modules[1].named_parameters()} == {"project.weight", "project.bias"}
    assert all(isinstance(layer, InteractionLayer) for layer in model.layers)


@pytest.mark.parametrize("dense_width", [K, 0])
def test_towers_of_one_feature_each_change_no_bit(dense_width):
    uncompressed = XLRMTowers(compression=1)
    flat, alone = built((), dense_width), built(tuple((feature,) for feature in FEATURES), dense_width, tower=uncompressed)
    dense, sparse = batch(8)
    assert torch.equal(flat(dense if dense_width else None, sparse), alone(dense if dense_width else None, sparse))


@pytest.mark.parametrize("towers", [(), TOWERS])
def test_every_weight_and_every_feature_gets_a_gradient(towers):
    model = built(towers)
    dense, sparse = batch(32)
    pooled = {feature: vector.detach().requires_grad_() for feature, vector in model.embeddings(sparse).to_dict().items()}
    model.predict(dense, pooled).square().sum().backward()
    weights = {name: p for name, p in model.named_parameters() if not name.startswith("embeddings.")}
    assert [name for name, p in weights.items() if p.grad is None or not p.grad.abs().max() > 0] == []
    assert all(vector.grad.abs().max() > 0 for vector in pooled.values())


@pytest.fixture(scope="module")
def experiment():
    return of_words(["model=xlrm", "mode=simulate"], where="test")


def full_size(experiment, towers=0):
    """The model of conf/model/xlrm.yaml, on the meta device; strided towers."""

    class Data:
        features = experiment.model.features()

    tables, names = experiment.tables(Data), [f.name for f in Data.features]
    groups = tuple(tuple(names[i::towers]) for i in range(towers))
    return experiment.model.build(tables, experiment.model.dense_features, torch.device("meta"), groups)


def test_it_is_of_its_class(experiment):
    """Section 5.1: "about 2 trillion parameters" and "around 700 MFlops/sample"."""
    cost = describe(full_size(experiment), 256)
    assert cost.embedding_parameters == pytest.approx(2e12, rel=0.01)
    assert (cost.forward_flops_per_sample + cost.backward_flops_per_sample) / 1e6 == pytest.approx(700, rel=0.02)


def test_forward_flops_by_hand(experiment):
    """Twice the multiply-adds: layers once a sample, mixtures once a dimension, attention once a vector, and its and the dots' products."""
    model = full_size(experiment)
    total = sum(m.weight.numel() for part in (model.bottom, model.over) for m in part if isinstance(m, torch.nn.Linear))
    for layer in model.layers:
        n, dim = layer.mix.in_features, layer.dim
        once = [layer.dots, *layer.cross.down, *layer.cross.up, *(m for m in layer.mlp if isinstance(m, torch.nn.Linear))]
        total += sum(m.weight.numel() for m in once)
        total += dim * sum(m.weight.numel() for m in (layer.cross_mix, layer.attention_mix, layer.mix))
        total += n * layer.query_key_value.weight.numel() + 3 * n * n * dim
    assert describe(model, 256).forward_flops_per_sample == 2 * total


@pytest.mark.parametrize("towers", [8, 16, 64, 96])
def test_however_many_towers_send_a_third(experiment, towers):
    """A tower a host of h100x64, the paper's 16, and towers of one or two features. An operator of a tower rounds up."""
    model = full_size(experiment, towers)
    assert 0 <= sum(model.tower_widths) - 96 * 256 / 3 < 4 * towers
    assert describe(model, 256).forward_flops_per_sample < describe(full_size(experiment), 256).forward_flops_per_sample


def test_groups_name_the_features_and_every_tower_has_its_share_of_each(experiment):
    names = [f.name for f in experiment.model.features()]
    assert (names[0], names[32], names[80], names[-1]) == ("item_0", "user_0", "item_user_0", "item_user_15")
    for tower in (names[i::16] for i in range(16)):
        assert [sum(name.rpartition("_")[0] == group for name in tower) for group in ("item", "user", "item_user")] == [2, 3, 1]


def test_it_brings_the_formats_with_which_it_fits(experiment):
    assert (experiment.choices["precision"], experiment.choices["optimizer"]) == ("fp16_tables", "row_wise_adagrad")
    resolved = of_words(["model=xlrm", "mode=simulate", "precision=fp32", "optimizer=default"], where="test")
    assert (resolved.precision.table, resolved.optimizer.sparse.name) == ("fp32", "adam")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "model.layers"),
        ({"vectors": 0}, "model.vectors"),
        ({"bottom_layers": [3]}, "model.bottom_layers"),
    ],
)
def test_sizes_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message):
        check_some_keys(changes, "model", XLRM)
        built(TOWERS, device="meta", **changes)


def test_a_tower_that_compresses_to_nothing():
    with pytest.raises(UserError, match="model.tower.compression"):
        XLRMTowers(compression=0)


def test_groups_must_count_the_rows():
    with pytest.raises(UserError, match="model.groups"):
        of_words(["model=xlrm", "mode=simulate", "model.groups.item=31"], where="test").model.features()


@pytest.mark.parametrize("words", [["model=dlrm", "model.rows=[100,200]", "model.lengths=[1]"], ["model=dlrm_small", "model.rows=[5]"]])
def test_lengths_must_count_the_rows(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"model\.lengths: one length a table is needed"):
        of_words([*words, "mode=plan", "data=random"], where="test").model.features()


@pytest.mark.parametrize("model", ["dcn", "dlrm", "sequence"])
def test_lengths_without_rows_would_say_nothing(model: str) -> None:
    with pytest.raises(UserError, match=r"model\.lengths: the data decide .*model\.rows"):
        of_words([f"model={model}", "model.lengths=[3]", "mode=plan"], where="test").model.features()
