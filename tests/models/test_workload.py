"""Costs against the published sizes of the papers' variants, and against counts by hand."""

from __future__ import annotations

import pytest
import torch

from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dcn import DCN
from recsys_lab.models.deepfm.network import DeepFMNetwork
from recsys_lab.models.dlrm import DLRM
from recsys_lab.models.dlrm.network import DLRMNetwork
from recsys_lab.models.workload import describe
from recsys_lab.units import MIB
from tests.models.inputs import CONF, SETTINGS, TABLES, D, K, built, from_yaml


def test_mlperf_dcn_has_its_published_size():
    model, dense_width = from_yaml("dcn_mlperf")
    cost = describe(model, dense_width)
    assert cost.dense_parameters == 16_044_545
    assert cost.embedding_rows == 204_184_588
    assert cost.embedding_parameters == 204_184_588 * 128
    assert model.over[0].in_features == 3456
    assert (cost.forward_flops_per_sample + cost.backward_flops_per_sample) / 1e6 == pytest.approx(96.2, abs=0.05)


@pytest.mark.parametrize(
    ("choice", "all_reduce_mib", "over_width", "table_gb"),
    [("dlrm_small", 9.5, 100, 2.048), ("dlrm_large", 1047, 64 * 65 // 2 + 256, 393.2), ("dlrm_mlperf", 9.0, 479, 104.5)],
)
def test_cpu_papers_variants_have_their_published_sizes(choice, all_reduce_mib, over_width, table_gb):
    """Kalamkar et al. 2020, tables I and II: the all-reduce is the dense part in FP32 (their MB are 2^20)."""
    model, dense_width = from_yaml(choice)
    cost = describe(model, dense_width)
    assert cost.dense_parameters * 4 / MIB == pytest.approx(all_reduce_mib, rel=0.005)
    assert model.over[0].in_features == over_width
    assert cost.embedding_parameters * 4 / 1e9 == pytest.approx(table_gb, rel=1e-3)


@pytest.mark.parametrize("choice", sorted(path.stem for path in CONF.glob("d*.yaml") if path.stem != "dlrm_v4"))  # test_dlrm_v4.py
def test_cost_by_hand(choice):
    """FLOPs from the layers' shapes: twice the multiply-adds forward, and backward that again for inputs and for weights."""
    model, dense_width = from_yaml(choice)
    cost = describe(model, dense_width)
    forward = 2 * sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    if isinstance(model, DLRMNetwork):
        forward += 2 * (len(model.features) + 1) ** 2 * model.bottom[-2].out_features
    assert cost.forward_flops_per_sample == forward
    without_gradient = 0 if isinstance(model, DeepFMNetwork) else 2 * model.bottom[0].weight.numel()  # DeepFM has no bottom MLP
    assert cost.backward_flops_per_sample == 2 * forward - without_gradient


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_activations_grow_with_the_layers_not_with_the_samples(kind):
    """One more hidden layer of n keeps n more floats a sample (its ReLU's output, which is the next layer's input)."""
    layers = SETTINGS[kind.__name__]["over_layers"]

    def kept(over_layers):
        model = kind(**SETTINGS[kind.__name__] | {"over_layers": over_layers}).build(ModelInputs(TABLES, K, torch.device("meta")))
        return describe(model, K).activation_bytes_per_sample

    assert kept([layers[0], 96, *layers[1:]]) - kept(layers) == 4 * 96
    assert kept(layers) >= 4 * D * (len(TABLES) + 1)


def test_without_dense_features():
    model = DCN(**SETTINGS["DCN"]).build(ModelInputs(TABLES, 0, torch.device("meta")))
    cost = describe(model, 0)
    assert model.bottom is None
    width = 4 * D
    assert cost.dense_parameters == 2 * (2 * 3 * width + width) + (width * 8 + 8) + (8 * 5 + 5) + (5 + 1)


def test_a_model_with_values_is_refused():
    with pytest.raises(AssertionError, match="meta device"):
        describe(built(DCN), K)
