"""What travels in 16 or 8 bits: what a number loses on the way; training stays close to FP32's, is repeatable, and is not FP32's."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.executor.formats import Codec, ScaledRows, gradient_codec, wire_formats
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.executor.reference import SEED, Outcome, Sample, samples, train_unsharded
from tests.executor.sharded import How, placed
from tests.executor.sharded import train as train_flat
from tests.executor.test_flexshard import POOLED, SEQUENCES, THREE
from tests.executor.test_sptt_modules import MIX, TOWERS
from tests.executor.test_sptt_modules import TABLES as OF_TOWERS
from tests.executor.tower_cases import plan_here
from tests.executor.tower_cases import train as train_towers
from tests.executor.tower_cases import train_unsharded as towers_unsharded
from tests.plan.plans import COMMS, FP8, UNLIKE
from tests.ranks import run_ranks

STEPS, ROWS, DENSE = 10, 16, 3
#: How far from FP32's a weight may end, over the farthest that any weight of its table went.
MOST_OFF = {COMMS: 0.01, UNLIKE: 0.01, FP8: 0.1}
#: Half a unit in the last place of FP16 and BF16, relative.
HALF_ULP = {"fp16": 2.0**-11, "bf16": 2.0**-8}
SPREAD: How = {"odd": "row_wise", "tiny": "table_wise", "shared": "column_wise"}
IN_HOST: How = {"odd": "table_row_wise", "tiny": "data_parallel", "shared": "table_column_wise"}
SUMS = tuple(Table(t.name, t.rows, t.dim, t.features) for t in POOLED)
#: (tables, how they are placed)
FLAT: list[tuple[tuple[Table, ...], How]] = [
    (POOLED, SPREAD),
    (POOLED, IN_HOST),
    (SUMS, {"*": "grid_shard"}),
    (POOLED, THREE),
    (SEQUENCES, THREE),
    (SEQUENCES, {"odd": "row_wise", "tiny": "data_parallel", "shared": "table_wise"}),
]


@given(st.floats(2.0**-24, 32.0, width=32), st.sampled_from(["fp16", "bf16"]), st.integers(1, 512))
def test_gradients_of_any_size_keep_the_format_s_digits(size: float, name: str, ranks: int) -> None:
    """From 6e-8 on, where FP16 alone would keep one bit; the mean over ranks from as far down as each rank's share reaches."""
    sent = gradient_codec(name)
    value = torch.tensor([size, -size])
    assert ((sent.decode(sent.encode(value)) - value).abs() <= HALF_ULP[name] * size * 1.001).all()
    share = sent.decode(sent.share(value, ranks))
    if size / ranks >= 2.0**-24:
        assert ((share - value / ranks).abs() <= HALF_ULP[name] * size / ranks * 1.001).all()


@given(st.floats(0, 2.0**127, width=32), st.integers(1, 64))
def test_no_mean_overflows_fp16(size: float, ranks: int) -> None:
    sent = gradient_codec("fp16")
    total = torch.zeros(2, dtype=torch.float16)
    for _ in range(ranks):
        total += sent.share(torch.tensor([size, -size]), ranks)
    assert sent.decode(total).isfinite().all()
    assert sent.decode(sent.encode(torch.tensor([size]))).isfinite().all()


def test_fp32_passes_as_it_is() -> None:
    value = torch.tensor([1e-40, 3.0, 1e38])
    for codec in (Codec("fp32"), gradient_codec("fp32")):
        assert codec.encode(value) is value and codec.decode(value) is value


@pytest.mark.parametrize("part", ["forward_comm", "backward_comm"])
def test_another_format_is_refused_in_one_line(part: str) -> None:
    with pytest.raises(UserError, match=rf"precision\.{part}.*int8.*fp32, fp16, bf16, fp8"):
        wire_formats(Precision("x", **{part: "int8"}))


#: Of FP8: half a unit in the last place, relative, and, below the least normal number, of the row's scale.
HALF_ULP_OF_8 = {"forward": (2.0**-4, 2.0**-10), "backward": (2.0**-3, 2.0**-17)}


@given(
    st.lists(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=5, max_size=5), max_size=4),
    st.sampled_from(["forward", "backward"]),
)
def test_fp8_loses_half_a_unit_in_the_last_place_of_the_row_s_scale(rows: list[list[float]], way: str) -> None:
    """One byte a number and four for the scale, which takes the row's largest number to the format's."""
    codec, given_rows = getattr(wire_formats(FP8), way), torch.tensor(rows).view(-1, 5)
    sent = codec.encode(given_rows)
    assert sent.dtype == torch.uint8 and sent.shape == (len(rows), codec.width(5)) and codec.width(5) == 9 and codec.width(0) == 0
    relative, of_scale = HALF_ULP_OF_8[way]
    scale = given_rows.abs().amax(1, keepdim=True) / torch.finfo(codec.eight_bits).max
    off = (codec.decode(sent) - given_rows).abs()
    assert (off <= torch.maximum(relative * given_rows.abs(), of_scale * scale.clamp(min=2.0**-126)) * 1.001).all()


def test_what_is_summed_is_not_fp8() -> None:
    """A reduce-scatter would add bytes up. As TorchRec: FP16 forward; its gradients BF16."""
    formats = wire_formats(FP8)
    assert isinstance(formats.forward, ScaledRows) and isinstance(formats.backward, ScaledRows)
    assert (formats.forward.of_sums.dtype, formats.backward.of_sums.dtype) == (torch.float16, torch.bfloat16)


def test_a_row_that_is_not_finite_stays_so() -> None:
    codec = wire_formats(FP8).forward
    for bad in (torch.inf, torch.nan):
        rows = torch.tensor([[1.0, bad], [1.0, 2.0]])
        there = codec.decode(codec.encode(rows))
        assert not there[0].isfinite().all() and torch.equal(there[1], rows[1])


def train_all(flat: list[list[Sample]], towers: list[Sample]) -> list[dict[str, Outcome]]:
    """Every case in every format; rows in tiers and towers twice."""
    outcomes: list[dict[str, Outcome]] = []
    for number, ((tables, how), batches) in enumerate(zip(FLAT, flat)):
        run = partial(train_flat, tables, placed(tables, how), batches, "sgd", DENSE)
        again = {3: COMMS, 4: FP8}.get(number)
        outcomes.append(
            {one.name: run(precision=one) for one in MOST_OFF} | ({f"{again.name} again": run(precision=again)} if again else {})
        )
    run = partial(train_towers, plan_here(OF_TOWERS, TOWERS["two"], MIX, "rows"), towers, "sgd", DENSE, True)
    return [*outcomes, {one.name: run(one) for one in MOST_OFF} | {f"{one.name} again": run(one) for one in (COMMS, FP8)}]


@pytest.mark.timeout(180)
def test_training_stays_close_to_fp32_and_is_the_same_bits_each_time() -> None:
    """Of every kind of exchange: a weight ends within 1 % of the farthest that any weight of its table went, with FP8 10 %."""
    flat = [samples(tables, STEPS, ROWS, DENSE) for tables, _ in FLAT]
    towers = samples(OF_TOWERS, STEPS, ROWS, DENSE)
    ranks = run_ranks(train_all, 2, 2, flat, towers, timeout_s=150)
    whole = [train_unsharded(tables, batches, "sgd", DENSE) for (tables, _), batches in zip(FLAT, flat)]
    whole.append(towers_unsharded(OF_TOWERS, TOWERS["two"], towers, "sgd", DENSE))
    for number, (expected, tables) in enumerate(zip(whole, [*(tables for tables, _ in FLAT), OF_TOWERS])):
        outcome = ranks[0][number]
        for table in tables:
            moved = (expected.tables[table.name] - initial_weight(table, 0, table.rows, 0, table.dim, SEED)).abs().max()
            for precision, share in MOST_OFF.items():
                off = (outcome[precision.name].tables[table.name] - expected.tables[table.name]).abs().max()
                assert 0 < off <= share * moved, f"case {number}, {table.name}, {precision.name}"
        for rank in ranks:
            for name in [name for name in rank[number] if f"{name} again" in rank[number]]:
                first, again = rank[number][name], rank[number][f"{name} again"]
                for one, other in ((first.tables, again.tables), (first.dense, again.dense)):
                    assert all(torch.equal(value, other[key]) for key, value in one.items())
