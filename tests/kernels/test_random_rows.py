"""The bare loops that benchmarks hold the kernels against do what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from experiments.benchmarks.limits import BareRows, first_of_each, layer_products
from experiments.benchmarks.one_machine import rows_of
from recsys_lab.kernels import available, native
from recsys_lab.plan.workload import DenseLayer

pytestmark = pytest.mark.skipif(not available(), reason="no C++ kernels on this machine")


@pytest.mark.parametrize("width", [1, 8, 16, 24, 64])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_read_sums_the_rows_of_the_list(width: int, threads: int) -> None:
    table = torch.randint(-8, 8, (100, width)).float()  # so that sums are exact in any order
    rows = torch.randperm(100)[:37]
    for ahead in (0, 4, 64):
        for second_level in (False, True):
            assert native.random_read(table, rows, ahead, threads, second_level=second_level) == table[rows].sum().item()


@pytest.mark.parametrize("width", [1, 8, 16, 24, 64])
@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("near", [0, 2])
def test_an_update_changes_the_rows_of_the_list_and_no_other(width: int, two: bool, near: int) -> None:
    table, other = torch.randn(100, width), torch.randn(100, width) if two else None
    rows = torch.randperm(100)[:37]
    factor = torch.ones(100, 1).index_fill_(0, rows, 2.0)
    expected = [table * factor, None if other is None else other * factor]
    native.random_update(table, other, rows, 2.0, 8, 2, near=near)
    torch.testing.assert_close([table, other], expected, rtol=0, atol=0)


@pytest.mark.parametrize("width", [8, 24, 64])
@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("near", [0, 2])
def test_an_update_adds_the_gradient_of_each_look_up(width: int, two: bool, near: int) -> None:
    parts = 2 if two else 1
    tables = [torch.randint(-8, 8, (100, width)).float() for _ in range(parts)]
    rows, source, gradient = torch.randint(0, 100, (37,)), torch.randint(0, 5, (37,)), torch.randint(-8, 8, (5, parts * width)).float()
    expected = [table.index_add(0, rows, 2 * of[source]) for table, of in zip(tables, gradient.split(width, 1))]
    native.random_update(tables[0], tables[1] if two else None, rows, 2.0, 8, 1, near=near, gradient=gradient, source=source)
    torch.testing.assert_close(tables, expected, rtol=0, atol=0)


def test_rows_are_in_the_order_of_their_first_look_ups() -> None:
    assert first_of_each(torch.tensor([7, 3, 7, 9, 3, 0])).tolist() == [7, 3, 9, 0]


def test_loops_over_hi_lo_split_weights_read_rows_of_half_the_width() -> None:
    place = torch.arange(32.0).view(8, 4)
    rows = BareRows.of(torch.tensor([5, 1, 5]), place)
    for bytes_per_weight, width in ((4, 4), (2, 2)):
        found = {loop() for loop in rows.reads(bytes_per_weight).values()}
        assert found == {place.view(-1, width)[[5, 1]].sum().item()}


def test_an_iterations_loops_read_each_row_once_and_add_to_it_the_gradient_of_each_bag() -> None:
    ids, lengths = torch.tensor([1, 1, 0, 2, 1]), torch.tensor([2, 1, 0, 2])  # two tables of 2 and 3 rows, two samples
    rows = rows_of(KeyedJaggedTensor(keys=["a", "b"], values=ids, lengths=lengths), [2, 3], 4)
    assert rows.read.rows.tolist() == [1, 0, 4, 3]
    gradient = rows.updated.gradient
    assert gradient is not None
    gradient.copy_(torch.tensor([[1.0], [2.0], [4.0], [8.0]]))
    for split in (False, True):
        for loop in replace(rows.updated, threads=1).updates(split=split).values():
            rows.updated.place.zero_()
            loop()
            found = rows.updated.place.view(2, 5, 2)[0] if split else rows.updated.place
            assert found[:, 0].tolist() == [2, 2, 0, 8, 8]


def test_a_first_layer_has_no_product_by_data() -> None:
    layer = DenseLayer(1.0, 13, 512)
    assert layer_products(layer, 2048, first=False) == {
        "forward": (2048, 13, 512),
        "backward_by_data": (2048, 512, 13),
        "backward_by_weights": (512, 2048, 13),
    }
    assert "backward_by_data" not in layer_products(layer, 2048, first=True)
