"""The C++ embedding kernels against the torch definition, bit for bit, and that against torch's own layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import embedding_bag

from recsys_lab.base.row_updates import ROW_UPDATES, STRATEGIES
from recsys_lab.errors import UserError
from recsys_lab.kernels import Lookups, Rule, available, bags, join, rows, torch_embedding, update, why_not
from recsys_lab.kernels.rule import STATE_OF
from tests.kernels.cases import FORMATS, batch, copies, same_bits, stored

pytestmark = pytest.mark.skipif(not available(), reason=f"no C++ kernels: {why_not()}")
RULES = {name: Rule(name, 0.05, step=3) for name in ("sgd", "row_wise_adagrad", "adagrad", "adam")}
THREADS = (1, 2, 3)
#: features, samples, rows, most ids a bag, D: small, with tails of a vector, wide, hot (rows with many occurrences), sparse
SHAPES = (
    (1, 5, 7, 4, 8),
    (3, 16, 100, 5, 16),
    (2, 30, 1000, 30, 64),
    (4, 64, 50, 3, 10),
    (2, 9, 300, 9, 130),
    (2, 9, 300, 9, 128),
    (2, 8, 40_000, 300, 16),
)


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[False, True], ids=["asked_to_write", "read_first"])
def read_first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Either way of prefetching rows, whatever is fastest here."""
    monkeypatch.setattr("recsys_lab.kernels.embedding.read_first", lambda parts: request.param)
    return request.param


@pytest.fixture(params=[False, True], ids=["first_level", "second_level"])
def second_level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Either way of prefetching rows of a look-up."""
    monkeypatch.setattr("recsys_lab.kernels.embedding.second_level", lambda: request.param)
    return request.param


def states_of(rule: Rule, count: int, dim: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """state, squares."""
    first = {None: None, "row": torch.rand(count), "weight": torch.rand(count, dim)}[STATE_OF[rule.name]]
    return first, torch.rand(count, dim) if rule.name == "adam" else None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("weighted", "mode"), [(False, "sum"), (False, "mean"), (True, "sum"), (True, "mean")])
@pytest.mark.usefixtures("second_level")
def test_bags_are_the_definitions_bits(shape: tuple[int, ...], weighted: bool, mode: str) -> None:
    features, samples, count, most, dim = shape
    torch.manual_seed(0)
    for dtype in (torch.int64, torch.int32):
        lookups = batch(features, samples, count, most, weighted=weighted, mode=mode, dtype=dtype)
        for table in (torch.float32, torch.bfloat16, torch.float16):
            weight = torch.randn(features * count, dim).to(table)
            expected = torch_embedding.bags(weight, lookups)
            for threads in THREADS:
                torch.set_num_threads(threads)
                assert same_bits(bags(weight, lookups), expected)
            wide = torch.zeros(samples, features * dim + 5, dtype=torch.bfloat16)
            bags(weight, lookups, torch.bfloat16, out=wide[:, 2:-3])
            assert same_bits(wide[:, 2:-3].contiguous(), expected.to(torch.bfloat16))
            assert not wide[:, :2].any()
            assert not wide[:, -3:].any()
            assert same_bits(rows(weight, lookups.ids), torch_embedding.rows(weight, lookups.ids))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_definition_is_torchs_embedding_bag(weighted: bool) -> None:
    torch.manual_seed(0)
    lookups = batch(1, 40, 100, 6, weighted=weighted)
    weight = torch.randn(100, 16, requires_grad=True)
    expected = embedding_bag(lookups.ids, weight, lookups.offsets[:-1], mode="sum", per_sample_weights=lookups.weights)
    torch.testing.assert_close(torch_embedding.bags(weight.detach(), lookups), expected.detach(), rtol=1e-6, atol=1e-6)
    grad = torch.randn_like(expected)
    expected.backward(grad)
    moved = weight.detach().clone()
    torch_embedding.update(moved, None, None, lookups, grad, Rule("sgd", 0.5))
    torch.testing.assert_close(moved, weight.detach() - 0.5 * weight.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("read_first")
def test_updates_are_the_definitions_bits_with_any_number_of_threads(shape: tuple[int, ...], rule: str) -> None:
    features, samples, count, most, dim = shape
    torch.manual_seed(0)
    values, how = torch.randn(features * count, dim), 0
    for format in FORMATS:
        for decay in (0.0, 0.1):
            # Every format and decay meets each of the other choices, not each combination of them.
            how += 1
            odd = how % 2
            kind = {"weighted": how % 3 == 0, "mode": ("sum", "mean")[odd], "dtype": (torch.int64, torch.int32)[odd]}
            lookups = batch(features, samples, count, most, seed=how, **kind)
            grad = torch.randn(samples, features * dim).to((torch.float32, torch.bfloat16)[how // 2 % 2])
            given = replace(RULES[rule], weight_decay=decay)
            start = (*stored(values, format), *states_of(given, features * count, dim))
            expected = copies(*start)
            torch_embedding.update(*expected[:3], lookups, grad, given, expected[3])
            assert not same_bits(expected[0], start[0])
            for threads in THREADS:
                torch.set_num_threads(threads)
                found = copies(*start)
                update(found[0], lookups, grad, given, low=found[1], state=found[2], squares=found[3])
                assert all(same_bits(*pair) for pair in zip(found, expected)), (format, decay, threads)


@pytest.mark.parametrize("skew", [1.0, 4.0, 60.0])
@pytest.mark.usefixtures("read_first")
def test_hot_rows_are_cut_the_same_way_by_every_number_of_threads(skew: float) -> None:
    """With 3 rows or nearly all look-ups on one, a row has several pieces; 60,000 ids fill a bucket many times over."""
    torch.manual_seed(0)
    for count in (3, 70_000):
        lookups = batch(1, 1000, count, 120, skew=skew)
        has_the_definitions_bits(torch.randn(count, 16), lookups, torch.randn(1000, 16))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("skew", [1.0, 4.0, 60.0])
@pytest.mark.usefixtures("read_first")
def test_tables_are_sorted_between_the_rows_of_those_before(skew: float, dtype: torch.dtype) -> None:
    """Nine sections, which few threads take: with full buckets, with few rows for much to sort, and a table that nobody looks up."""
    torch.manual_seed(0)
    lookups = batch(9, 500, 20_000, 20, skew=skew, dtype=dtype)
    offsets = lookups.offsets
    assert offsets is not None
    empty = slice(int(offsets[2000]), int(offsets[2500]))  # of the fifth table
    kept = torch.cat([lookups.ids[: empty.start], lookups.ids[empty.stop :]])
    fewer = torch.cat([offsets[:2000], offsets[2000].expand(500), offsets[2500:] - (empty.stop - empty.start)])
    has_the_definitions_bits(torch.randn(180_000, 3), replace(lookups, ids=kept, offsets=fewer), torch.randn(500, 27))


def test_keys_of_64_bits_are_sorted_so_too() -> None:
    torch.manual_seed(0)
    lookups = batch(3, 70_000, 1 << 22, 1)
    has_the_definitions_bits(torch.randn(3 << 22, 1), lookups, torch.randn(70_000, 3))


def has_the_definitions_bits(start: torch.Tensor, lookups: Lookups, grad: torch.Tensor) -> None:
    """An update by SGD, by every number of threads."""
    expected = start.clone()
    torch_embedding.update(expected, None, None, lookups, grad, RULES["sgd"])
    for threads in THREADS:
        torch.set_num_threads(threads)
        found = start.clone()
        update(found, lookups, grad, RULES["sgd"])
        assert torch.equal(found, expected), (len(start), threads)


@settings(max_examples=60)
@given(
    firsts=st.lists(st.integers(0, 60), min_size=1, max_size=9),
    most=st.lists(st.sampled_from((0, 3, 200, 400)), min_size=9, max_size=9),
    samples=st.sampled_from((1, 5, 64)),
    in_order=st.booleans(),
    mode=st.sampled_from(("sum", "mean")),
    seed=st.integers(0, 2**31),
)
def test_tables_may_lie_apart_be_shared_or_overlap(
    firsts: list[int], most: list[int], samples: int, in_order: bool, mode: str, seed: int
) -> None:
    """Features with rows of their own and ids enough are updated by themselves; a row that two features have is still summed over both."""
    random = torch.Generator().manual_seed(seed)
    first_rows = torch.tensor(sorted(firsts) if in_order else firsts)
    lengths = torch.cat([torch.randint(0, most[f] + 1, (samples,), generator=random) for f in range(len(firsts))])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    lookups = Lookups(torch.randint(0, 9, (int(offsets[-1]),), generator=random), offsets, len(firsts), first_rows, mode=mode)
    grad = torch.randn(samples, 16 * len(firsts), generator=random)
    has_the_definitions_bits(torch.randn(70, 16, generator=random), lookups, grad)


def test_adam_is_torchs_on_the_rows_that_move() -> None:
    """torch.optim.SparseAdam over several steps; a row whose gradients cancel rests and keeps its states."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(60, 24, sparse=True)
    found, state, squares = table.weight.detach().clone(), torch.zeros(60, 24), torch.zeros(60, 24)
    reference = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    for step in range(1, 5):
        ids, grad = torch.randint(0, 59, (40,)), torch.randn(40, 24)
        table.zero_grad()
        table(ids).backward(grad)
        reference.step()
        cancelled = torch.cat([grad, torch.ones(1, 24), -torch.ones(1, 24)])
        lookups = Lookups(torch.cat([ids, torch.tensor([59, 59])]))
        update(found, lookups, cancelled, Rule("adam", 0.1, step=step), state=state, squares=squares)
    torch.testing.assert_close(found, table.weight.detach(), rtol=1e-5, atol=1e-6)
    assert not state[59].any()
    assert not squares[59].any()


def test_a_row_that_is_looked_up_often_is_summed_as_exactly_as_in_one_go() -> None:
    """The bound for sums by pieces: no worse than one running sum, against FP64."""
    torch.manual_seed(0)
    many = 5 * torch_embedding.PIECE + 7
    grad = torch.randn(many, 8)
    _, sums = torch_embedding.summed(Lookups(torch.zeros(many, dtype=torch.int64)), grad, 8)
    running = embedding_bag(torch.arange(many), grad, torch.tensor([0]), mode="sum")
    exact = grad.double().sum(0)
    assert (sums - exact).abs().max() <= (running - exact).abs().max() + many * 2**-24


@pytest.mark.parametrize("source", [None, torch.int32, torch.int64])
def test_single_rows_with_and_without_a_source(source: torch.dtype | None) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (300,))
    given = None if source is None else torch.randint(0, 20, (300,)).to(source)
    for weights in (None, torch.randn(300)):
        lookups = Lookups(ids, source=given, weights=weights)
        grad = torch.randn(300 if source is None else 20, 24)
        expected, found = copies(*[torch.randn(50, 24)] * 2)
        torch_embedding.update(expected, None, None, lookups, grad, RULES["sgd"])
        update(found, lookups, grad, RULES["sgd"])
        assert torch.equal(found, expected)


def test_a_gradient_with_strides_needs_no_copy_of_ones_own() -> None:
    torch.manual_seed(0)
    lookups = batch(3, 20, 40, 4)
    whole = torch.randn(20, 5 * 16)
    for grad in (whole[:, 16:64], whole[:, 3:51], torch.randn(48, 20).t()):
        expected, found = copies(*[torch.randn(120, 16)] * 2)
        torch_embedding.update(expected, None, None, lookups, grad, RULES["sgd"])
        update(found, lookups, grad, RULES["sgd"])
        assert torch.equal(found, expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("format", ["fp32", "split_bf16"])
def test_the_papers_strategies_give_the_same_but_for_rounding(strategy: str, format: str) -> None:
    """A weight moves n times instead of once, with an error of half a unit in the last place each time."""
    if strategy == "atomic" and format != "fp32":
        with pytest.raises(UserError, match="for plain SGD"):
            update(*_one_row(format), strategy=strategy)
        return
    torch.manual_seed(0)
    lookups, grad, values = batch(2, 50, 60, 8), torch.randn(50, 32), torch.randn(120, 16)
    expected = values.clone()
    torch_embedding.update(expected, None, None, lookups, grad, RULES["sgd"])
    results = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        weight, low = stored(values, format)
        update(weight, lookups, grad, RULES["sgd"], low=low, strategy=strategy)
        results.append(weight if low is None else join(weight, low))
        torch.testing.assert_close(results[-1], expected, rtol=0, atol=60 * 2**-23)
    if strategy != "atomic":  # whose sums come in any order
        assert all(torch.equal(results[0], other) for other in results)


def _one_row(format: str) -> tuple[torch.Tensor, Lookups, torch.Tensor, Rule]:
    return stored(torch.ones(1, 4), format)[0], Lookups(torch.tensor([0])), torch.ones(1, 4), RULES["sgd"]


def test_an_unknown_strategy_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="unknown strategy"):
        update(*_one_row("fp32"), strategy="fastest")


@pytest.mark.parametrize("step", [3, 5, 2**40])  # from the fifth on its product has more than 64 bits
def test_stochastic_rounding_takes_a_neighbour_and_keeps_the_mean(step: int) -> None:
    """Of normal, subnormal and exact numbers of FP16. The chance of the upper neighbour is the distance from the lower one."""
    values = torch.tensor([1.0003, -1.0003, 1e-6, -3e-8, 0.0, 0.5, 60001.0])
    many = torch_embedding.rounded_at_random(values.repeat(40_000, 1), torch.arange(40_000), step=step)
    assert torch.equal(many.half().float(), many)
    spacing = torch.tensor([2**-10, 2**-10, 2**-24, 2**-24, 0, 0, 32])
    assert ((many - values).abs() <= spacing).all()
    assert ((many.double().mean(0) - values.double()).abs() <= 4 * spacing / 2 / 40_000**0.5).all()  # four standard errors


def test_updates_round_fp16_rows_alike_wherever_they_lie() -> None:
    """What decides is row, column and step, so replicas stay alike; small steps that rounding to nearest loses arrive in the mean."""
    lookups, grad = Lookups(torch.arange(500).repeat(2)), torch.full((1000, 16), 0.5)
    rule = replace(RULES["sgd"], lr=1e-4, stochastic=True)  # 1e-4 in all, and numbers of FP16 below 1 are 2^-11 apart
    first, second, nearest = (torch.ones(500, 16, dtype=torch.float16) for _ in range(3))
    update(first, lookups, grad, rule)
    update(second, lookups, grad, rule)
    update(nearest, lookups, grad, replace(rule, stochastic=False))
    assert torch.equal(first, second) and torch.equal(nearest, torch.ones_like(nearest))
    assert 1e-4 / 2**-11 * 0.9 < (first != 1).float().mean() < 1e-4 / 2**-11 * 1.1
    update(second, lookups, grad, replace(rule, step=2))
    assert not torch.equal(first == 1, second == 1)


@pytest.mark.parametrize("wrong", [-1, 7])
def test_an_id_outside_the_table_changes_nothing(wrong: int) -> None:
    weight = torch.ones(7, 8)
    lookups = Lookups(torch.tensor([1, 2, wrong, 3]), torch.tensor([0, 2, 4]))
    with pytest.raises(IndexError, match=f"id {wrong} at position 2 "):
        bags(weight, lookups)
    with pytest.raises(IndexError, match=f"id {wrong} at position 2 "):
        rows(weight, lookups.ids)
    for strategy in ROW_UPDATES:
        with pytest.raises(IndexError, match=f"id {wrong} at position 2 "):
            update(weight, lookups, torch.ones(2, 8), RULES["sgd"], strategy=strategy)
    with pytest.raises(IndexError, match="at position 1 "):
        update(weight, Lookups(torch.tensor([1, 2]), source=torch.tensor([0, 5])), torch.ones(2, 8), RULES["sgd"])
    with pytest.raises(IndexError, match="offsets must rise"):
        bags(weight, Lookups(torch.tensor([1, 2]), torch.tensor([0, 2, 1, 2])))
    assert (weight == 1).all()


def test_nothing_looked_up_and_empty_tables() -> None:
    nothing = Lookups(torch.zeros(0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64))
    for weight in (torch.ones(3, 8), torch.ones(0, 8)):
        assert torch.equal(bags(weight, nothing), torch.zeros(3, 8))
        update(weight, nothing, torch.ones(3, 8), RULES["sgd"])
        assert (weight == 1).all()
    none = Lookups(torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    assert bags(torch.ones(3, 8), none).shape == (0, 8)
    update(torch.ones(3, 8), none, torch.ones(0, 8), RULES["sgd"])
