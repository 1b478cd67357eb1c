"""Models with towers against formulas written independently of them, against the flat models, and against counts by hand."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from recsys_lab.config import command_line
from recsys_lab.errors import UserError
from recsys_lab.experiment import ModelChoice
from recsys_lab.models.dcn import DCN, DCNTowers
from recsys_lab.models.dcn.network import DCNTower
from recsys_lab.models.dlrm import DLRM, DLRMTowers
from recsys_lab.models.dlrm.network import DLRMNetwork, DLRMTower
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.layers import FEW_VECTORS, MANY_SAMPLES, dot_interaction, dots_of_all, dots_of_pairs
from recsys_lab.models.workload import describe, describe_towers
from recsys_lab.tables import Table
from tests.models.inputs import FEATURES, SETTINGS, TABLES, D, K, batch, with_towers

#: Not in the order of the tables, and a table's two features are in one tower; the last has one feature.
TOWERS = (("brand", "shop", "day"), ("color",))
ALONE = tuple((feature,) for feature in FEATURES)
CASES: list[tuple[type, Any]] = [
    (DLRM, DLRMTowers(c=1, p=0, dim=2)),
    (DLRM, DLRMTowers(c=0, p=1, dim=D)),
    (DLRM, DLRMTowers(c=2, p=3, dim=3, over_layers=[4, 1])),
    (DCN, DCNTowers(cross_layers=1, cross_rank=3, dim=D)),
    (DCN, DCNTowers(cross_layers=2, cross_rank=2, vectors=None, dim=2, over_layers=[4, 1])),
]
WIDTHS = [(6, 2), (D, D), (27, 15), (D, D), (6, 2)]
IDS = ["c", "p", "c and p", "one vector", "a vector a feature"]


def towered(kind: type, tower: Any, towers=TOWERS, dense_width: int = K, device: str = "cpu", **changes: Any):
    model = with_towers(kind, TABLES, dense_width, device, towers, **SETTINGS[kind.__name__] | {"tower": tower} | changes)
    if device == "cpu":
        initialise_dense(model, 1, torch.device("cpu"))
        fill_tables(model.embeddings, TABLES, 1)
    return model


def dlrm_tower_by_hand(module, embeddings):
    """Listing 1 for one sample: embeddings [F, N]."""
    parts = []
    if module.combine is not None:
        parts += [weight @ embeddings.flatten() + bias for weight, bias in zip(module.combine.weight, module.combine.bias)]
    for embedding in embeddings:
        if module.project is not None:
            parts += [weight @ embedding + bias for weight, bias in zip(module.project.weight, module.project.bias)]
    return torch.stack(parts)


def dcn_tower_by_hand(module, embeddings):
    """Listing 2 for one sample, its cross layers with the product of their factors."""
    x0 = x = embeddings.flatten()
    for down, up in zip(module.cross.down, module.cross.up):
        x = x0 * ((up.weight @ down.weight) @ x + up.bias) + x
    return x if isinstance(module.project, torch.nn.Identity) else module.project.weight @ x + module.project.bias


def tower_by_hand(module, embeddings):
    if isinstance(module, torch.nn.Flatten):
        return embeddings.flatten()
    return {DLRMTower: dlrm_tower_by_hand, DCNTower: dcn_tower_by_hand}[type(module)](module, embeddings)


def score_by_hand(model, dense, vectors):
    """One sample: the dense part's vector and the towers', all of D."""
    bottom = model.bottom(dense)
    if isinstance(model, DLRMNetwork):
        dots = [a @ b for a, b in combinations([bottom, *vectors], 2)]
        return model.over(torch.cat([bottom, torch.stack(dots)]))[0]
    return model.over(model.cross(torch.cat([bottom, *vectors])))[0]


@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_a_model_with_towers_is_the_listings_then_the_global_interaction(kind, tower):
    model, generator = towered(kind, tower), torch.Generator().manual_seed(1)
    for module in model.tower_modules:  # zero at first, which would not show a misplaced bias
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    dense, sparse = batch(7)
    pooled = model.embeddings(sparse).to_dict()
    logits = model(dense, sparse)
    assert logits.shape == (7,) and logits.std() > 1e-4
    for sample in range(7):
        outputs = [
            tower_by_hand(module, torch.stack([pooled[feature][sample] for feature in own]))
            for module, own in zip(model.tower_modules, TOWERS)
        ]
        vectors = [vector for output in outputs for vector in output.split(model.vector_dim)]
        torch.testing.assert_close(logits[sample], score_by_hand(model, dense[sample], vectors))


@pytest.mark.parametrize("changes", [{}, {"normalise_vectors": True}, {"towers": ALONE}], ids=["plain", "normalised", "alone"])
@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_a_model_with_towers_that_begins_with_first_order_weights_gives_just_them(kind, tower, changes):
    model, (dense, sparse) = towered(kind, tower, first_order=True, **changes), batch(7)
    start = FirstOrder({}, np.linspace(-1, 1, K).astype(np.float32), 0.25)
    model.begin_with(start)
    first = sum(vector[:, model.first_order_column] for vector in model.embeddings(sparse).to_dict().values())
    logits = model(dense, sparse)
    torch.testing.assert_close(logits, first + dense @ torch.from_numpy(start.dense) + 0.25)
    logits.sum().backward()
    assert model.over[-1].weight.grad.abs().max() > 0  # the rest is silent, and learns all the same
    assert model.initial_share < 1


@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_first_order_weights_cost_no_byte_and_no_work_between_towers(kind, tower):
    plain, first = (describe_towers(towered(kind, tower, device="meta", first_order=flag)) for flag in (False, True))
    assert [(one.columns, one.parameters, one.forward_flops_per_sample) for one in plain] == [
        (one.columns, one.parameters, one.forward_flops_per_sample) for one in first
    ]


@pytest.mark.parametrize(("kind", "tower", "widths"), [(*case, widths) for case, widths in zip(CASES, WIDTHS)], ids=IDS)
def test_predict_is_its_two_halves(kind, tower, widths):
    """An executor runs the modules where the towers are and the rest where the samples are."""
    model = towered(kind, tower)
    dense, sparse = batch(5)
    pooled = model.embeddings(sparse).to_dict()
    outputs = [module(torch.stack([pooled[f] for f in own], dim=1)) for module, own in zip(model.tower_modules, model.tower_features)]
    assert model.tower_features == TOWERS and model.tower_widths == widths == tuple(output.shape[1] for output in outputs)
    assert torch.equal(model.predict_from_towers(dense, outputs), model.predict(dense, pooled))
    assert torch.equal(model.predict(dense, pooled), model(dense, sparse))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("dense_width", [K, 0])
@pytest.mark.parametrize(("kind", "tower"), [(DLRM, DLRMTowers(c=0, p=1)), (DLRM, DLRMTowers()), (DCN, DCNTowers(cross_layers=0))])
def test_towers_that_pass_their_features_through_change_no_bit(kind, tower, dense_width, normalise):
    """SPTT with a tower a feature (section 5.2.1): same weights of one seed, same logits."""
    flat, own = (towered(kind, tower, towers, dense_width, normalise_vectors=normalise) for towers in ((), ALONE))
    if not normalise:  # else each tower has a normalisation of its own
        assert not list(own.tower_modules.parameters())
        assert [name for name, _ in flat.named_parameters()] == [name for name, _ in own.named_parameters()]
    dense, sparse = batch(16)
    assert torch.equal(flat(dense if dense_width else None, sparse), own(dense if dense_width else None, sparse))


@pytest.mark.parametrize("dense_width", [K, 0])
@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_vectors_are_normalised_once(kind, tower, dense_width):
    """As they enter their towers, and the dense features' own beside what comes out. No weight is without a use."""
    model = towered(kind, tower, dense_width=dense_width, normalise_vectors=True)
    shapes = []
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.register_forward_hook(lambda _, inputs, out: shapes.append(inputs[0].shape[1]))
    dense, sparse = batch(3)
    model(dense if dense_width else None, sparse).sum().backward()
    assert sum(shapes) == len(FEATURES) + (1 if dense_width else 0)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_gradients_of_everything(kind, tower):
    """Of every weight and of each feature's vector, against finite differences; none is zero."""
    model = towered(kind, tower, normalise_vectors=True).double()
    generator = torch.Generator().manual_seed(3)
    dense = torch.randn(2, K, generator=generator, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters() if not name.startswith("embeddings.")]
    vectors = [torch.randn(2, D, generator=generator, dtype=torch.float64, requires_grad=True) for _ in FEATURES]

    class Predict(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, vectors):
            return self.inner.predict(dense, dict(zip(FEATURES, vectors)))

    def function(*inputs):
        parameters = {f"inner.{name}": value for name, value in zip(names, inputs[len(FEATURES) :])}
        return torch.func.functional_call(Predict(), parameters, (inputs[: len(FEATURES)],))

    assert gradcheck(function, (*vectors, *(model.get_parameter(name) for name in names)))
    model.predict(dense, dict(zip(FEATURES, vectors))).sum().backward()
    towers = [name for name in names if name.startswith("tower_modules.")]
    assert towers and all(model.get_parameter(name).grad.abs().max() > 0 for name in towers)


@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_a_tower_module_reads_its_own_features_alone(kind, tower):
    """What lets it be trained within its hosts: another tower's features reach neither its outputs nor its weights' gradients."""
    model = towered(kind, tower)
    dense, sparse = batch(6)
    pooled = {feature: vector.detach() for feature, vector in model.embeddings(sparse).to_dict().items()}
    outputs = []
    for pooled_of_color in (pooled["color"], pooled["color"] + 1):
        changed = pooled | {"color": pooled_of_color}
        outputs.append([m(torch.stack([changed[f] for f in own], dim=1)) for m, own in zip(model.tower_modules, TOWERS)])
    assert torch.equal(outputs[0][0], outputs[1][0]) and not torch.equal(outputs[0][1], outputs[1][1])


def test_cost_by_hand():
    """8 vectors of 26 features: a projection each, dots of 27, and layers; backward twice that, but for the first layer's input."""
    model = towered(DLRM, DLRMTowers(c=1, p=1, dim=2), device="meta")
    cost = describe(model, K)
    vectors = 4 + 2 + 1
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert sum(m.weight.numel() for m in model.tower_modules.modules() if isinstance(m, torch.nn.Linear)) == 2 * (D * 2) + (3 + 1) * D * 2
    projections = [(m.project, len(own)) for m, own in zip(model.tower_modules, TOWERS)]
    forward = 2 * sum(m.weight.numel() for m in linears) + 2 * vectors**2 * 2
    forward += 2 * sum((features - 1) * project.weight.numel() for project, features in projections)  # once a feature
    assert cost.forward_flops_per_sample == forward
    assert cost.backward_flops_per_sample == 2 * forward - 2 * model.bottom[0].weight.numel()
    assert cost.dense_parameters == sum(m.weight.numel() + m.bias.numel() for m in linears)
    assert model.over[0].in_features == 2 + vectors * (vectors - 1) // 2 and model.bottom[-2].out_features == 2


@pytest.mark.parametrize(("kind", "tower"), CASES, ids=IDS)
def test_on_the_meta_device_nothing_has_values_and_the_first_weights_are_those_of_the_seed(kind, tower):
    model, expected = towered(kind, tower, device="meta"), towered(kind, tower)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert describe(model, K).dense_parameters == sum(p.numel() for n, p in expected.named_parameters() if not n.startswith("embeddings."))
    initialise_dense(model, 1, torch.device("cpu"))
    for name, parameter in expected.tower_modules.named_parameters():
        assert torch.equal(model.tower_modules.get_parameter(name), parameter)


@pytest.mark.parametrize(
    ("towers", "message"),
    [
        ((("color", "shop"), ("brand",)), "day in 0 of 2"),
        ((("color", "shop"), ("brand", "day", "shop")), "shop in 2 of 2"),
        ((("color", "shop"), ("brand", "day", "hour")), "hour"),
        ((("color", "shop", "brand", "day"), ()), "no features"),
    ],
)
@pytest.mark.parametrize(("kind", "tower"), [(DLRM, DLRMTowers()), (DCN, DCNTowers())])
def test_towers_that_are_no_partition_are_the_users_mistake(kind, tower, towers, message):
    with pytest.raises(UserError, match=message):
        with_towers(kind, TABLES, K, "meta", towers, **SETTINGS[kind.__name__], tower=tower)


@pytest.mark.parametrize(
    ("kind", "tower", "sizes", "message"),
    [
        (DLRM, DLRMTowers, {"c": 0, "p": 0}, "model.tower.c"),
        (DLRM, DLRMTowers, {"p": -1}, "model.tower.p"),
        (DLRM, DLRMTowers, {"dim": 0}, "model.tower.dim"),
        (DLRM, DLRMTowers, {"over_layers": [5, 2]}, "model.tower.over_layers"),
        (DCN, DCNTowers, {"cross_rank": 0}, "model.tower.cross_rank"),
        (DCN, DCNTowers, {"cross_layers": -1}, "model.tower.cross_layers"),
        (DCN, DCNTowers, {"vectors": 0}, "model.tower.vectors"),
        (DCN, DCNTowers, {"dim": 0}, "model.tower.dim"),
    ],
)
def test_sizes_of_towers_that_cannot_be(kind, tower, sizes, message):
    with pytest.raises(UserError, match=message):
        towered(kind, tower(**sizes), device="meta")


def test_settings_of_towers_are_keys_of_the_model():
    config = command_line.read(["model=dlrm", "model.tower.c=2", "model.tower.dim=4"]).config
    tables = tuple(Table(name, 9, 16, (name,)) for name in "abc")
    model = ModelChoice.of(config.model).build(tables, K, torch.device("meta"), (("a", "c"), ("b",)))
    assert model.tower_widths == (2 * 2 * 4, 2 * 4)
    with pytest.raises(UserError, match="model.tower.d"):
        command_line.read(["model=dlrm", "+model.tower.d=4"])


@pytest.mark.parametrize("vectors", [2, 3, 7, 9])
def test_dots_pair_by_pair_are_those_of_one_product(vectors):
    """Values, order and gradients; the rule takes the first for few vectors and many samples."""
    x = torch.randn(MANY_SAMPLES, vectors, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(MANY_SAMPLES, vectors * (vectors - 1) // 2, dtype=torch.float64)
    results = []
    for routine in (dots_of_pairs, dots_of_all):
        out = routine(x)
        results.append((out, *torch.autograd.grad((out * weight).sum(), x)))
    for pairs, whole in zip(*results):
        torch.testing.assert_close(pairs, whole)
    assert torch.equal(dot_interaction(x), dots_of_pairs(x) if vectors <= FEW_VECTORS else dots_of_all(x))
    assert torch.equal(dot_interaction(x[:-1]), dots_of_all(x[:-1]))
