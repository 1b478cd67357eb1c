"""Forward against formulas written independently, against TorchRec's own models, and gradients against finite differences."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
import torchrec.models.dlrm as torchrec_dlrm
from torch.autograd import gradcheck
from torchrec.sparse.jagged_tensor import KeyedTensor

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dcn import DCN
from recsys_lab.models.dlrm import DLRM
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.tables import Table
from tests.models.inputs import FEATURES, SETTINGS, TABLES, D, K, batch, built
from tests.some_keys import check_some_keys


def pooled_by_hand(model, sparse, sample):
    """Each feature's [D] of one sample: sum or mean over its bag, row by row."""
    out = []
    for table in TABLES:
        weight = model.embeddings.embedding_bags[table.name].weight
        for feature in table.features:
            jagged = sparse[feature]
            ids = jagged.values()[jagged.offsets()[sample] : jagged.offsets()[sample + 1]].tolist()
            total = sum((weight[i] for i in ids), torch.zeros(D))
            out.append(total / max(len(ids), 1) if table.pooling == "mean" else total)
    return out


def mlp_by_hand(module, x, relu_at_end):
    layers = [m for m in module if isinstance(m, torch.nn.Linear)]
    for i, layer in enumerate(layers):
        x = torch.einsum("oi,i->o", layer.weight, x) + layer.bias
        if relu_at_end or i < len(layers) - 1:
            x = torch.clamp(x, min=0)
    return x


def dlrm_by_hand(model, dense, sparse, sample):
    vectors = pooled_by_hand(model, sparse, sample)
    bottom = []
    if dense is not None:
        bottom = [mlp_by_hand(model.bottom, dense[sample], relu_at_end=True)]
    dots = [torch.einsum("d,d->", a, b) for a, b in combinations(bottom + vectors, 2)]
    return mlp_by_hand(model.over, torch.cat([*bottom, torch.stack(dots)]), relu_at_end=False)[0]


def dcn_by_hand(model, dense, sparse, sample):
    vectors = pooled_by_hand(model, sparse, sample)
    if dense is not None:
        vectors = [mlp_by_hand(model.bottom, dense[sample], relu_at_end=True), *vectors]
    x0 = x = torch.cat(vectors)
    for down, up in zip(model.cross.down, model.cross.up):
        full_rank = torch.einsum("nr,rm->nm", up.weight, down.weight)
        x = x0 * (torch.einsum("nm,m->n", full_rank, x) + up.bias) + x
    return mlp_by_hand(model.over, x, relu_at_end=False)[0]


@pytest.mark.parametrize("with_dense", [True, False])
@pytest.mark.parametrize(("kind", "by_hand"), [(DLRM, dlrm_by_hand), (DCN, dcn_by_hand)])
def test_forward_is_the_formula(kind, by_hand, with_dense):
    model = built(kind, K if with_dense else 0)
    dense, sparse = batch(9)
    dense = dense if with_dense else None
    logits = model(dense, sparse)
    assert logits.shape == (9,)
    assert logits.std() > 1e-4  # samples differ: the comparison says something
    torch.testing.assert_close(logits, torch.stack([by_hand(model, dense, sparse, i) for i in range(9)]))


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_normalised_vectors_are_those_of_unit_variance(kind):
    """LayerNorm before the interaction equals the plain model fed with vectors that were normalised by hand."""
    plain, normalised = built(kind, 0), built(kind, 0, normalise_vectors=True)
    vectors = {f: torch.randn(6, D) * 10**i for i, f in enumerate(FEATURES)}
    by_hand = {f: (v - v.mean(1, keepdim=True)) / torch.sqrt(v.var(1, unbiased=False, keepdim=True) + 1e-5) for f, v in vectors.items()}
    torch.testing.assert_close(normalised.predict(None, vectors), plain.predict(None, by_hand))


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_features_are_taken_by_name(kind):
    """A sharded collection may return its features in another order."""
    model = built(kind)
    dense, sparse = batch(5)
    expected = model(dense, sparse)
    pooled = model.embeddings(sparse).to_dict()
    turned = FEATURES[::-1]
    values = torch.cat([pooled[f] for f in turned], dim=1)
    model.embeddings.forward = lambda sparse: KeyedTensor(turned, [D] * len(turned), values)
    torch.testing.assert_close(model(dense, sparse), expected, rtol=0, atol=0)


def test_dlrm_equals_torchrec():
    model = built(DLRM)
    torchrec_model = torchrec_dlrm.DLRM(model.embeddings, K, [6, D], [8, 5, 1])
    copy_shared(model, torchrec_model)
    dense, sparse = batch(16)
    torch.testing.assert_close(model(dense, sparse), torchrec_model(dense, sparse).squeeze(1))


def test_dcn_equals_torchrec():
    model = built(DCN)
    torchrec_model = torchrec_dlrm.DLRM_DCN(model.embeddings, K, [6, D], [8, 5, 1], 2, 3)
    copy_shared(model, torchrec_model)
    cross = torchrec_model.inter_arch.crossnet
    with torch.no_grad():
        for i, (down, up) in enumerate(zip(model.cross.down, model.cross.up)):
            up.bias.normal_()  # zero at first, which would not show a misplaced bias
            cross.V_kernels[i].copy_(down.weight)
            cross.W_kernels[i].copy_(up.weight)
            cross.bias[i].copy_(up.bias)
    dense, sparse = batch(16)
    torch.testing.assert_close(model(dense, sparse), torchrec_model(dense, sparse).squeeze(1))


def copy_shared(model, torchrec_model):
    linears = [
        m for part in (torchrec_model.dense_arch, torchrec_model.over_arch) for m in part.modules() if isinstance(m, torch.nn.Linear)
    ]
    layers = [m for part in (model.bottom, model.over) for m in part if isinstance(m, torch.nn.Linear)]
    assert len(linears) == len(layers)
    for to, from_ in zip(linears, layers):
        to.load_state_dict(from_.state_dict())


def test_what_stands_before_the_dots_of_normalised_vectors_is_not_normalised():
    """DLRM with dense features: the bottom MLP's vector as it is, then dots of vectors of unit variance, its own among them."""
    model = built(DLRM, normalise_vectors=True)
    dense, _ = batch(6)
    vectors = [torch.randn(6, D) * 10**i for i in range(len(FEATURES))]
    logits = model.predict(dense, dict(zip(FEATURES, vectors)))
    for sample in range(6):
        bottom = mlp_by_hand(model.bottom, dense[sample], relu_at_end=True)
        of_sample = [bottom, *(v[sample] for v in vectors)]
        normal = [(v - v.mean()) / torch.sqrt(v.var(unbiased=False) + 1e-5) for v in of_sample]
        dots = torch.stack([torch.dot(a, b) for a, b in combinations(normal, 2)])
        torch.testing.assert_close(logits[sample], mlp_by_hand(model.over, torch.cat([bottom, dots]), relu_at_end=False)[0])


@pytest.mark.parametrize("normalise_vectors", [False, True])
@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_gradients(kind, normalise_vectors):
    """Of every dense weight and of each feature's vector, against finite differences."""
    model = built(kind, normalise_vectors=normalise_vectors).double()
    generator = torch.Generator().manual_seed(3)
    dense = torch.randn(2, K, generator=generator, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters() if not name.startswith("embeddings.")]
    weights = [model.get_parameter(name) for name in names]
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

    assert gradcheck(function, (*vectors, *weights))


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_dropout_follows_torchs_seed_and_rests_in_evaluation(kind):
    model = built(kind, dropout=0.5)
    dense, sparse = batch(8)

    def draw(seed):
        torch.manual_seed(seed)
        return model(dense, sparse)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    model.eval()
    assert torch.equal(draw(1), draw(2))
    torch.testing.assert_close(draw(1), built(kind)(dense, sparse))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottom_layers": [6, D + 1]}, "model.bottom_layers"),
        ({"bottom_layers": []}, "model.bottom_layers"),
        ({"over_layers": [8, 2]}, "model.over_layers"),
        ({"over_layers": [0, 1]}, "model.over_layers"),
        ({"rows": [7, 11]}, "model.rows"),
        ({"rows": [7, 11, 5], "lengths": [1]}, "model.lengths"),
        ({"dense_features": 13}, "model.dense_features"),
        ({"dropout": 1.5}, "model.dropout"),
    ],
)
@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_sizes_that_do_not_fit_are_the_users_mistake(kind, changes, message):
    with pytest.raises(UserError, match=message):
        check_some_keys(changes, "model", kind)
        kind(**SETTINGS[kind.__name__] | changes).build(ModelInputs(TABLES, K, torch.device("meta")))


def test_cross_layers_need_a_rank():
    with pytest.raises(UserError, match="model.cross_rank"):
        check_some_keys({"cross_rank": 0}, "model", DCN)


def test_a_sequence_feature_is_refused():
    with pytest.raises(UserError, match="table clicks: .*pooling none"):
        DCN(**SETTINGS["DCN"]).build(ModelInputs((Table("clicks", 9, D, ("clicks",), pooling="none"),), 0, torch.device("meta")))


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_the_first_order_part_adds_first_components_and_a_linear_part(kind):
    plain, wide = built(kind), built(kind, first_order=True)
    assert (plain.initial_share, wide.initial_share) == (1.0, 1 / 3)
    wide.load_state_dict(plain.state_dict(), strict=False)
    dense, sparse = batch(7)
    first = sum(vector[:, 0] for vector in wide.embeddings(sparse).to_dict().values()) + wide.first_dense(dense).squeeze(1)
    torch.testing.assert_close(wide(dense, sparse), plain(dense, sparse) + first)


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_a_model_that_begins_with_first_order_weights_gives_just_them(kind):
    model, (dense, sparse) = built(kind, first_order=True), batch(7)
    start = FirstOrder({}, np.linspace(-1, 1, K).astype(np.float32), 0.25)
    model.begin_with(start)
    first = sum(vector[:, model.first_order_column] for vector in model.embeddings(sparse).to_dict().values())
    torch.testing.assert_close(model(dense, sparse), first + dense @ torch.from_numpy(start.dense) + 0.25)
    model(dense, sparse).sum().backward()
    assert model.over[-1].weight.grad.abs().max() > 0  # the rest is silent, and learns all the same
