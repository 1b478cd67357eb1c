"""The exported program of every kind of model gives what the model gives, for any number of samples and any length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchrec.sparse.jagged_tensor import JaggedTensor

from recsys_lab.experiment import of_words
from recsys_lab.export.program import DenseArch, features_read, program_of

CLICKS = ("data=random", "data.rows_per_table=[11,30,40,7]", "data.dense_features=5", "logger=none")
LONG = pytest.mark.long
HISTORIES = ("data=random", "data.rows_per_table=[50]", "logger=none", "mode=plan", "model.max_length=12")


def fresh(*words: str) -> tuple[Any, Any, int]:
    """The model of a line with random weights, its tables, and K."""
    experiment = of_words(words, where="test")
    data, towers = experiment.open_data(), (("C1", "C3"), ("C2", "C4")) if "sharder=dmt" in words else ()
    torch.manual_seed(1)
    model = experiment.build_model(data, torch.device("cpu"), towers).requires_grad_(False).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model, experiment.tables(data), data.dense_features


@pytest.mark.parametrize(
    "words",
    [
        ("model=dcn", "sharder=dmt", "model.first_order=true"),
        ("model=dlrm",),
        pytest.param(("model=dlrm", "model.embedding_dim=32", "model.bottom_layers=[32]"), marks=LONG),  # whose dots are a kernel of ours
        pytest.param(("model=deepfm",), marks=LONG),
        pytest.param(
            ("model=xlrm", "model.rows=null", "model.lengths=null", "model.dense_features=null", "model.groups=null"),
            marks=LONG,
        ),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_click_model(words: tuple[str, ...]) -> None:
    model, tables, width = fresh(*CLICKS, *words)
    program = program_of(model, tables, width).module()
    for samples in (1, 2, 600):  # of few vectors and many samples dots are computed pair by pair
        rows = {name: torch.randn(samples, table.dim) for name, table in features_read(model, tables).items()}
        dense = torch.randn(samples, width)
        expected = model.predict(dense, rows)
        assert (program(dense, rows, {}) - expected).abs().max() <= 1e-4 * max(1.0, expected.abs().max())


@pytest.mark.parametrize(
    "words",
    [
        ("model=sequence", "model.objective=next_item"),
        ("model=sequence", "model.objective=click"),
        pytest.param(("model=hstu",), marks=LONG),
        pytest.param(("model=sequence", "model.objective=click", "model.attention=pairwise"), marks=LONG),
    ],
    ids=" ".join,
)
def test_a_model_of_histories(words: tuple[str, ...]) -> None:
    model, tables, _ = fresh(*HISTORIES, *words)
    program, read = program_of(model, tables, 0).module(), features_read(model, tables)
    for lengths in ([3, 1, 9, 12], [4], [1, 7]):
        counts = {name: [1] * len(lengths) if "candidate" in name else lengths for name in read}
        rows = {name: [torch.randn(count, table.dim) for count in counts[name]] for name, table in read.items()}
        padded = {name: torch.nn.utils.rnn.pad_sequence(own, batch_first=True) for name, own in rows.items()}
        given = {name: torch.tensor(own) for name, own in counts.items()}
        jagged = {name: JaggedTensor(torch.cat(own), lengths=given[name]) for name, own in rows.items()}
        expected = model.users(jagged) if model.objective == "next_item" else model.predict(None, jagged)
        assert torch.allclose(program(None, padded, given), expected, rtol=1e-4, atol=1e-4)
        assert torch.allclose(DenseArch(model)(None, padded, given), expected, rtol=1e-4, atol=1e-4)
