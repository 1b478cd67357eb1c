"""The Triton kernels against the torch definition on a CPU, bit for bit: on a GPU where there is one, else in Triton's interpreter.

Triton comes with torch for CUDA; `make test-triton` brings it to a CPU machine and has it interpret. Elsewhere these are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab import kernels
from recsys_lab.executor.sparse_optim import SparseOptimizer
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels import Lookups, Rule, embedding, join, split, torch_embedding
from tests.kernels.cases import FORMATS, batch, copies, same_bits, stored
from tests.kernels.test_embedding import RULES, states_of
from tests.kernels.test_split_update import BITS

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: it comes with torch for CUDA, or by make test-triton", allow_module_level=True)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
runs = pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="no GPU, and TRITON_INTERPRET is not 1")
#: features, samples, rows, most ids a bag, D: as of C++, small enough for an interpreter
SHAPES = ((1, 5, 7, 4, 8), (3, 8, 20, 4, 16), (2, 6, 15, 3, 10), (2, 3, 30, 3, 130), (1, 4, 3, 12, 1), (2, 2, 9, 30, 64))


def use_triton(patch: pytest.MonkeyPatch) -> None:
    """Calls of recsys_lab.kernels go to Triton, on this machine too."""
    patch.setattr(embedding, "native_for", lambda weight: False)
    patch.setattr(embedding, "triton_for", lambda weight: True)


@pytest.fixture
def by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    use_triton(monkeypatch)


def there(*given: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Copies on the device."""
    return [None if tensor is None else tensor.to(DEVICE, copy=True) for tensor in given]


def moved(lookups: Lookups) -> Lookups:
    names = ("ids", "offsets", "first_rows", "source", "weights")
    return replace(lookups, **dict(zip(names, there(*(getattr(lookups, name) for name in names)))))


def assert_same(found: list[torch.Tensor | None], expected: list[torch.Tensor | None]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert same_bits(None if ours is None else ours.cpu(), theirs)


def update_both(
    tables: list[torch.Tensor | None], lookups: Lookups, grad: torch.Tensor, rule: Rule
) -> tuple[list[torch.Tensor | None], list[torch.Tensor | None]]:
    """weight, low, state and squares after an update by Triton (where it ran), and after the definition's."""
    found, expected = there(*tables), copies(*tables)
    kernels.update(found[0], moved(lookups), grad.to(DEVICE), rule, low=found[1], state=found[2], squares=found[3])
    torch_embedding.update(*expected[:3], lookups, grad, rule, expected[3])
    return found, expected


@runs
@pytest.mark.usefixtures("by_triton")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("weighted", "mode"), [(False, "sum"), (False, "mean"), (True, "sum"), (True, "mean")])
def test_look_ups_are_the_definitions_bits(shape: tuple[int, ...], weighted: bool, mode: str) -> None:
    features, samples, count, most, dim = shape
    torch.manual_seed(0)
    for table, ids, out in ((torch.float32, torch.int64, 0), (torch.bfloat16, torch.int32, 1), (torch.float16, torch.int64, 1)):
        lookups = batch(features, samples, count, most, weighted=weighted, mode=mode, dtype=ids)
        weight, dtype = torch.randn(features * count, dim).to(table), (torch.float32, torch.bfloat16)[out]
        wide = torch.zeros(samples, features * dim + 5, dtype=dtype, device=DEVICE)
        kernels.bags(weight.to(DEVICE), moved(lookups), dtype, out=wide[:, 2:-3])
        assert same_bits(wide[:, 2:-3].cpu().contiguous(), torch_embedding.bags(weight, lookups).to(dtype))
        assert not wide[:, :2].any()
        assert not wide[:, -3:].any()
        single = kernels.rows(weight.to(DEVICE), lookups.ids.to(DEVICE), dtype)
        assert same_bits(single.cpu(), torch_embedding.rows(weight, lookups.ids).to(dtype))


@runs
@pytest.mark.usefixtures("by_triton")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_updates_are_the_definitions_bits(shape: tuple[int, ...], rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with many occurrences too: here more than five."""
    features, samples, count, most, dim = shape
    torch.manual_seed(0)
    monkeypatch.setattr(torch_embedding, "PIECE", 5)
    values = torch.randn(features * count, dim)
    for how, format in enumerate(FORMATS):
        kind = {"weighted": how % 3 == 0, "mode": ("sum", "mean")[how % 2], "dtype": (torch.int64, torch.int32)[how % 2]}
        lookups = batch(features, samples, count, most, seed=how, skew=3.0, **kind)
        grad = torch.randn(samples, features * dim).to((torch.float32, torch.bfloat16)[how // 2 % 2])
        grad[0] = 0.0
        tables = [*stored(values, format), *states_of(RULES[rule], features * count, dim)]
        assert_same(*update_both(tables, lookups, grad, replace(RULES[rule], weight_decay=(0.0, 0.1)[how % 2])))


@runs
@pytest.mark.usefixtures("by_triton")
@settings(max_examples=40)
@given(st.integers(1, 7), st.integers(1, 9), st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_rows_with_many_occurrences_find_their_pieces(window: int, more: int, ids: list[int]) -> None:
    """Wherever such a row begins and ends between the marks, and however long a piece is beside their distance."""
    from recsys_lab.kernels import triton_embedding

    grad = torch.randn(len(ids), 3, generator=torch.Generator().manual_seed(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_embedding, "PIECE", window + more - 1)
        patch.setattr(triton_embedding, "WINDOW", window)
        assert_same(*update_both([torch.ones(6, 3), None, None, None], Lookups(torch.tensor(ids)), grad, RULES["sgd"]))


@runs
@settings(max_examples=60)
@given(st.data(), st.integers(1, 40), st.sampled_from([0.5, 0.1, 1e-30, 1e30]), st.sampled_from([0.0, 0.01]), st.sampled_from([*RULES]))
def test_halves_move_as_fp32_does(data: st.DataObject, dim: int, lr: float, decay: float, name: str) -> None:
    """Whatever bits: denormals, infinities, NaNs and both zeros too."""
    many = st.lists(BITS, min_size=3 * dim, max_size=3 * dim)
    start, grad = (torch.tensor(data.draw(many)).to(torch.int32).view(torch.float32).view(3, dim) for _ in range(2))
    rule, lookups = Rule(name, lr, weight_decay=decay), Lookups(torch.tensor([2, 0, 2]))
    state, squares = states_of(rule, 3, dim)
    with pytest.MonkeyPatch.context() as patch:
        use_triton(patch)
        whole, expected = update_both([start, None, state, squares], lookups, grad, rule)
        halves, _ = update_both([*split(start), state, squares], lookups, grad, rule)
    assert_same(whole, expected)
    assert same_bits(join(*(half.cpu() for half in halves[:2])), expected[0])
    assert_same(halves[2:], expected[2:])
    assert torch.equal(whole[0][1].cpu().view(torch.int32), start[1].view(torch.int32))  # not looked up


@runs
@pytest.mark.usefixtures("by_triton")
@pytest.mark.parametrize("source", [None, torch.int32, torch.int64])
def test_single_rows_and_gradients_with_strides(source: torch.dtype | None) -> None:
    torch.manual_seed(0)
    ids, places = torch.randint(0, 10, (30,)), None if source is None else torch.randint(0, 7, (30,)).to(source)
    for weights in (None, torch.randn(30)):
        whole = torch.randn(30 if source is None else 7, 40)
        for grad in (whole[:, 3:27], whole[:, :24].t().contiguous().t()):
            assert_same(
                *update_both([torch.randn(10, 24), None, None, None], Lookups(ids, source=places, weights=weights), grad, RULES["sgd"])
            )


@runs
@pytest.mark.usefixtures("by_triton")
@pytest.mark.parametrize("wrong", [-1, 7])
def test_an_id_outside_the_table_changes_nothing(wrong: int) -> None:
    weight = torch.ones(7, 8, device=DEVICE)
    lookups = moved(Lookups(torch.tensor([1, 2, wrong, 3]), torch.tensor([0, 2, 4])))
    beyond = moved(Lookups(torch.tensor([1, 2]), source=torch.tensor([0, 5])))
    if DEVICE == "cpu":  # on a GPU the process ends
        with pytest.raises(IndexError, match=f"id {wrong} at position 2 "):
            kernels.update(weight, lookups, torch.ones(2, 8), RULES["sgd"])
        with pytest.raises(IndexError, match="sources from 0 to 5 of a gradient with 2 rows"):
            kernels.update(weight, beyond, torch.ones(2, 8), RULES["sgd"])
        with pytest.raises(IndexError, match="not among the table's 7 rows"):
            kernels.bags(weight, lookups)
        with pytest.raises(IndexError, match="not among the table's 7 rows"):
            kernels.rows(weight, lookups.ids)
        with pytest.raises(IndexError, match="offsets do not rise"):
            kernels.bags(weight, Lookups(torch.tensor([1, 2]), torch.tensor([0, 2, 1, 2])))
    assert (weight == 1).all()


@pytest.mark.skipif(INTERPRETED or not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("bags(w, Lookups(t([1, 9]), t([0, 1, 2])))", "an id is not among the table's rows"),
        ("bags(w, Lookups(t([1, 2]), t([0, 2, 1, 2])))", "an id is not among the table's rows"),
        ("rows(w, t([-1]))", "an id is not among the table's rows"),
        ("update(w, Lookups(t([1, 7, 2]), t([0, 2, 3])), g, r)", "an id is not among the table's rows"),
        ("update(w, Lookups(t([1, -1])), g, r)", "an id is not among the table's rows"),
        ("update(w, Lookups(t([1, 2]), source=t([0, 5])), g, r)", "a source not among the gradient's"),
    ],
)
def test_a_wrong_id_ends_a_gpus_process(call: str, told: str) -> None:
    """After that CUDA answers nothing in it."""
    lines = (
        "import torch",
        "from recsys_lab import kernels",
        "from recsys_lab.kernels import Lookups, Rule",
        "w, g, r = torch.ones(7, 8, device='cuda'), torch.ones(2, 8, device='cuda'), Rule('sgd', 0.1)",
    )
    lines += "t = lambda values: torch.tensor(values, device='cuda')", f"kernels.{call}", "torch.cuda.synchronize()"
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode != 0 and told in done.stderr, done.stderr[-2000:]


@runs
@pytest.mark.usefixtures("by_triton")
def test_nothing_looked_up_and_empty_tables() -> None:
    nothing = moved(Lookups(torch.zeros(0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)))
    for weight in (torch.ones(3, 8, device=DEVICE), torch.ones(0, 8, device=DEVICE)):
        assert torch.equal(kernels.bags(weight, nothing), torch.zeros(3, 8, device=DEVICE))
        kernels.update(weight, nothing, torch.ones(3, 8, device=DEVICE), RULES["sgd"])
        assert (weight == 1).all()
    none = moved(Lookups(torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)))
    assert kernels.bags(torch.ones(3, 8, device=DEVICE), none).shape == (0, 8)
    assert kernels.rows(torch.ones(3, 8, device=DEVICE), none.ids).shape == (0, 8)


@runs
@pytest.mark.parametrize("format", ["split_bf16", "fp32"])
@pytest.mark.parametrize("mode", ["sum", "none"])
def test_a_tables_training_has_the_same_bits(format: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-up, backward pass and step of the tables that a rank holds: by Triton, and by whatever the CPU has."""
    joined = []
    for triton in (False, True):
        with monkeypatch.context() as patch:
            if triton:
                use_triton(patch)
            device = torch.device(DEVICE if triton else "cpu")
            batch_of = TableBatch([HeldShard("a", 0, 9, 0, 12, 2, format, mode), HeldShard("b", 0, 5, 0, 12, 1, format, mode)], device)
            batch_of.fill(lambda table, start, stop, *columns: torch.linspace(-1, 1, 12 * (stop - start)).view(-1, 12))
            optimizer = SparseOptimizer([batch_of], Rule("adagrad", 0.1), device)
            random = torch.Generator().manual_seed(0)
            for _ in range(2):
                offsets = torch.tensor([0, 2, 3, 3, 5, 6, 9], device=device)
                found = batch_of.look_up(torch.randint(0, 5, (9,), generator=random).to(device), offsets, 2)
                (found * torch.rand(found.shape, generator=random).to(device)).sum().backward()
                optimizer.step()
            joined.append(batch_of.weights.read().cpu())
    assert torch.equal(*joined)


@pytest.mark.parametrize("capability", [80, 90])
def test_the_gpus_code_rounds_as_the_definition_does(capability: int) -> None:
    """Every launch compiled for a GPU, which need not be there: no product contracted with a sum, no denormal flushed, no quotient or
    root that is not rounded to nearest.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.triton_compiled", str(capability)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    code = json.loads(done.stdout)
    assert {name.split()[0] for name in code} == {"pool_bags", "read_rows", "note_bags", "note_rows", "sum_pieces", "move_rows"}
    for name, text in code.items():
        arithmetic = set(re.findall(r"^\s*(?:@\S+ )?((?:fma|mad|add|sub|mul|div|sqrt|rcp|ex2)\.\S*f(?:32|16|64)\S*)", text, re.MULTILINE))
        assert arithmetic <= {"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "sqrt.rn.f32"}, name
        assert "ftz" not in text, name
    assert any("sqrt.rn.f32" in text and "div.rn.f32" in text for text in code.values())
