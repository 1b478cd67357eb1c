"""DeepFM against its formula written pair by pair, its gradients, its tables' width, and a model of a user's with other widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor
from torch.autograd import gradcheck

from recsys_lab.config import command_line
from recsys_lab.data.protocol import Feature
from recsys_lab.errors import UserError
from recsys_lab.experiment import ModelChoice
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.dcn import DCN
from recsys_lab.models.deepfm import DeepFM
from recsys_lab.models.deepfm.network import DeepFMNetwork, second_order
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.layers import embedding_bags, feature_names
from recsys_lab.models.workload import describe
from recsys_lab.tables import Table
from tests.models.inputs import FEATURES, D, K, batch
from tests.some_keys import check_some_keys

SETTINGS = {"embedding_dim": D, "deep_layers": [6, 5, 1]}
TABLES = (
    Table("color", 7, D + 1, ("color",)),
    Table("shop", 11, D + 1, ("shop", "brand"), pooling="mean"),
    Table("day", 5, D + 1, ("day",)),
)
CPU = torch.device("cpu")


def deepfm(dense_width: int = K, device: torch.device = CPU, **changes) -> DeepFMNetwork:
    model = DeepFM(**SETTINGS | changes).build(ModelInputs(TABLES, dense_width, device))
    if device == CPU:
        initialise_dense(model, 1, CPU)
        fill_tables(model.embeddings, TABLES, 1)
    return model


def by_hand(model: DeepFMNetwork, dense: Tensor | None, pooled: Mapping[str, Tensor], sample: int) -> Tensor:
    """Equations 1 to 4 of the paper for one sample: x_i is 1 for an id, and a dense feature's value."""
    rows = [pooled[feature][sample] for feature in FEATURES]
    if dense is not None:
        rows += [value * row for value, row in zip(dense[sample], model.dense_rows.weight)]
    first_order = sum(row[D] for row in rows)
    second = sum(a[:D] @ b[:D] for a, b in combinations(rows, 2))
    x = torch.cat([row[:D] for row in rows])
    layers = [m for m in model.deep if isinstance(m, torch.nn.Linear)]
    for layer in layers[:-1]:
        x = torch.clamp(layer.weight @ x + layer.bias, min=0)
    return first_order + second + (layers[-1].weight @ x + layers[-1].bias)[0]


@pytest.mark.parametrize("dense_width", [K, 0])
def test_forward_is_the_formula_with_its_gradients(dense_width):
    model = deepfm(dense_width)
    dense, sparse = batch(9)
    dense = dense if dense_width else None
    pooled = model.embeddings(sparse).to_dict()
    assert {vector.shape[1] for vector in pooled.values()} == {D + 1}
    weight = torch.linspace(-1, 2, 9)
    results = []
    for logits in (model(dense, sparse), torch.stack([by_hand(model, dense, pooled, i) for i in range(9)])):
        assert logits.shape == (9,) and logits.std() > 1e-3
        results.append((logits, *torch.autograd.grad((logits * weight).sum(), list(model.parameters()))))
    for result, expected in zip(*results):
        torch.testing.assert_close(result, expected)
        assert result.abs().max() > 0


@pytest.mark.parametrize("dense_width", [K, 0])
def test_a_model_that_begins_with_first_order_weights_gives_just_them_and_learns_the_rest(dense_width):
    model, (dense, sparse) = deepfm(dense_width, scale_pairs=True), batch(9)
    dense = dense if dense_width else None
    plain = deepfm(dense_width)
    torch.testing.assert_close(model(dense, sparse), plain(dense, sparse))  # its weight is 1 at first
    start = FirstOrder({}, np.linspace(-1, 1, dense_width).astype(np.float32), 0.25)
    model.begin_with(start)
    logits = model(dense, sparse)
    expected = sum(vector[:, D] for vector in model.embeddings(sparse).to_dict().values()) + 0.25
    torch.testing.assert_close(logits, expected if dense is None else expected + dense @ torch.from_numpy(start.dense))
    logits.square().sum().backward()
    assert model.pairs.weight.grad.abs() > 0 and model.deep[-1].weight.grad.abs().max() > 0


def test_gradients_against_finite_differences():
    model = deepfm().double()
    names = [name for name, _ in model.named_parameters() if not name.startswith("embeddings.")]
    generator = torch.Generator().manual_seed(3)
    dense = torch.randn(2, K, generator=generator, dtype=torch.float64)
    rows = [torch.randn(2, D + 1, generator=generator, dtype=torch.float64, requires_grad=True) for _ in FEATURES]

    class Predict(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, rows):
            return self.inner.predict(dense, dict(zip(FEATURES, rows)))

    def function(*inputs):
        weights = {f"inner.{name}": value for name, value in zip(names, inputs[len(FEATURES) :])}
        return torch.func.functional_call(Predict(), weights, (inputs[: len(FEATURES)],))

    assert gradcheck(function, (*rows, *(model.get_parameter(name) for name in names)))


@pytest.mark.parametrize("vectors", [1, 2, 7])
def test_second_order_is_the_sum_over_pairs(vectors):
    x = torch.randn(4, vectors, 3, dtype=torch.float64)
    expected = sum(((x[:, i] * x[:, j]).sum(1) for i, j in combinations(range(vectors), 2)), torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(second_order(x), expected)


def test_a_row_has_a_column_more_than_an_embedding():
    """In the plan's tables as in the model's, and for each dimension of its own."""
    config = command_line.read(["model=deepfm", "model.embedding_dim=8"]).config
    choice = ModelChoice.of(config.model)
    tables = choice.tables(data("a", "b"), "fp32")
    assert [table.dim for table in tables] == [9, 9]
    model = choice.build(tables, K, torch.device("meta"))
    cost = describe(model, K)
    assert cost.embedding_parameters == 9 * (10 + 10)
    assert cost.forward_flops_per_sample == 2 * sum(m.weight.numel() for m in model.deep if isinstance(m, torch.nn.Linear))
    assert cost.dense_parameters == K * 9 + sum(p.numel() for p in model.deep.parameters())
    assert [table.dim for table in replace(choice, dims=[4, 12]).tables(data("a", "b"), "fp32")] == [5, 13]
    assert DCN.widths(8) == (8,)


class WideAndDeep(ClickModel):
    """As a user would write it: a weight a feature for the wide half, and a vector for the deep one, of other widths than DeepFM's."""

    def __init__(self, tables, dense_width, device=None, *, embedding_dim: int):
        super().__init__()
        self.features, self.embeddings = feature_names(tables), embedding_bags(tables, device)
        self.deep = torch.nn.Linear(len(self.features) * 2 * embedding_dim, 1, device=device)

    @staticmethod
    def widths(dim: int) -> tuple[int, ...]:
        return 1, 2 * dim

    def predict(self, dense, looked_up):
        rows = torch.stack([looked_up[feature] for feature in self.features], dim=1)
        wide, vectors = rows[:, :, 0], rows[:, :, 1:]
        return wide.sum(1) + self.deep(vectors.flatten(1)).squeeze(1)


def test_a_model_of_a_users_declares_its_own_widths():
    group = OmegaConf.create({"_target_": f"{__name__}.WideAndDeep", "embedding_dim": 3})
    tables = ModelChoice.of(group).tables(data("a", "b"), "fp32")
    assert [table.dim for table in tables] == [7, 7]
    model = WideAndDeep(tables, 0, CPU, embedding_dim=3)
    looked_up = {name: torch.randn(2, 7) for name in "ab"}
    expected = [sum(looked_up[n][i, 0] for n in "ab") + model.deep(torch.cat([looked_up[n][i, 1:] for n in "ab"]))[0] for i in range(2)]
    torch.testing.assert_close(model.predict(None, looked_up), torch.stack(expected))


def test_a_model_from_the_meta_device_starts_like_any_other():
    direct, model = deepfm(), deepfm(device=torch.device("meta"))
    initialise_dense(model, 1, CPU)
    weights = {name: weight for name, weight in model.named_parameters() if not name.startswith("embeddings.")}
    assert "dense_rows.weight" in weights
    assert all(torch.equal(direct.get_parameter(name), weight) for name, weight in weights.items())
    assert 0 < weights["dense_rows.weight"].abs().max() <= 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deep_layers": [6, 2]}, "model.deep_layers"),
        ({"embedding_dim": 0}, "model.embedding_dim"),
        ({"dropout": 1.0}, "model.dropout"),
        ({"dense_features": 13}, "model.dense_features"),
    ],
)
def test_sizes_that_do_not_fit_are_the_users_mistake(changes, message):
    with pytest.raises(UserError, match=message):
        check_some_keys(changes, "model", DeepFM)
        deepfm(device=torch.device("meta"), **changes)


def data(*names: str):
    class Data:
        features = tuple(Feature(name, 10) for name in names)

    return Data
