"""First weights depend on the seed and the table's name, never on how or where the table is cut."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recsys_lab import kernels
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dcn import DCN
from recsys_lab.models.dlrm import DLRM
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.table_weights import initial_rows, initial_weight
from recsys_lab.tables import Table
from tests.models.inputs import SETTINGS, TABLES, K, batch, built


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 9), st.integers(0, 2**40), st.data())
def test_any_shard_is_a_cut_of_the_whole(rows, dim, seed, data):
    table = Table("t", rows, dim, ("t",))
    row_start, row_stop = sorted((data.draw(st.integers(0, rows)), data.draw(st.integers(0, rows))))
    col_start, col_stop = sorted((data.draw(st.integers(0, dim)), data.draw(st.integers(0, dim))))
    whole = initial_weight(table, 0, rows, 0, dim, seed)
    shard = initial_weight(table, row_start, row_stop, col_start, col_stop, seed)
    assert whole.shape == (rows, dim) and whole.dtype == torch.float32
    assert torch.equal(shard, whole[row_start:row_stop, col_start:col_stop])


def test_a_shard_larger_than_a_block_is_a_cut_of_the_whole():
    table = Table("t", 100_000, 5, ("t",))
    whole = initial_weight(table, 0, table.rows, 0, 5, 3)
    assert torch.equal(initial_weight(table, 12_345, 98_765, 1, 4, 3), whole[12_345:98_765, 1:4])


@pytest.mark.skipif(not kernels.available(), reason="needs the C++ kernels")
@pytest.mark.parametrize(("dim", "columns"), [(64, (0, 64)), (5, (1, 4)), (7, (3, 7)), (1, (0, 1))])
def test_cpp_and_numpy_give_the_same_bits(dim, columns, monkeypatch):
    table = Table("t", 3_000_000_019, dim, ("t",))  # rows times draws pass 2**32
    rows = np.random.default_rng(0).integers(0, table.rows, 70_000)
    ours = initial_rows(table, rows, *columns, seed=2**40)
    monkeypatch.setattr(kernels, "available", lambda: False)
    assert torch.equal(ours, initial_rows(table, rows, *columns, seed=2**40))


def test_values_are_splitmix64():
    """The published generator, in Python's own integers."""
    table = Table("t", 4, 3, ("t",))
    key = int.from_bytes(hashlib.blake2b(b"7/t", digest_size=8).digest(), "little")

    def value(row, col):
        z = (key + (row * 2 + col // 2) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
        bits = (z >> 32 if col % 2 else z % 2**32) >> 8
        return (bits / 2**23 - 1) * 0.5

    expected = torch.tensor([[value(row, col) for col in range(3)] for row in range(4)], dtype=torch.float32)
    torch.testing.assert_close(initial_weight(table, 0, 4, 0, 3, 7), expected, rtol=0, atol=1e-7)


def test_values_are_uniform_and_independent():
    table = Table("t", 20_000, 8, ("t",))
    weight = initial_weight(table, 0, table.rows, 0, 8, 1).numpy() * np.sqrt(table.rows)
    assert weight.min() >= -1 and weight.max() < 1
    assert stats.kstest(weight.ravel(), "uniform", args=(-1, 2)).pvalue > 1e-3
    correlation = np.corrcoef(weight.T)
    assert np.abs(correlation[~np.eye(8, dtype=bool)]).max() < 5 / np.sqrt(table.rows)  # of columns
    assert abs(np.corrcoef(weight[:-1].ravel(), weight[1:].ravel())[0, 1]) < 5 / np.sqrt(weight.size)  # of neighbouring rows


def test_seeds_and_tables_differ():
    def first(name, seed):
        return initial_weight(Table(name, 50, 4, (name,)), 0, 50, 0, 4, seed)

    values = [first("a", 1), first("a", 2), first("b", 1)]
    for i, one in enumerate(values):
        for other in values[:i]:
            assert not (one == other).any()


@pytest.mark.parametrize("kind", [DLRM, DCN])
def test_a_model_from_the_meta_device_starts_like_any_other(kind):
    direct = built(kind, normalise_vectors=True)
    model = kind(**SETTINGS[kind.__name__], normalise_vectors=True).build(ModelInputs(TABLES, K, torch.device("meta")))
    assert all(p.is_meta for p in model.parameters())
    torch.manual_seed(99)  # the state of the generator must not matter, nor be moved
    state = torch.get_rng_state()
    initialise_dense(model, 1, torch.device("cpu"))
    assert torch.equal(state, torch.get_rng_state())
    model.embeddings.to_empty(device="cpu")
    fill_tables(model.embeddings, TABLES[::-1], 1)
    dense, sparse = batch(7)
    assert torch.equal(model(dense, sparse), direct(dense, sparse))
    initialise_dense(model, 2, torch.device("cpu"))
    assert not torch.equal(model(dense, sparse), direct(dense, sparse))


def test_cross_layers_start_as_torchrecs():
    """Xavier normal, zero bias: variance 2 / (in + out)."""
    model = DCN(embedding_dim=64, bottom_layers=[64], cross_layers=4, cross_rank=36, over_layers=[1]).build(
        ModelInputs((Table("t", 5, 64, ("t",)),), 0, None)
    )
    initialise_dense(model, 5, torch.device("cpu"))
    weights = torch.cat([w.weight.flatten() for w in [*model.cross.down, *model.cross.up]])
    assert abs(weights.std().item() / (2 / 100) ** 0.5 - 1) < 0.02
    assert all((up.bias == 0).all() for up in model.cross.up)
