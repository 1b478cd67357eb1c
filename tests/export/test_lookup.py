"""What is copied into an export reads raw values as training does, whatever they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from recsys_lab.data.table import encode
from recsys_lab.errors import UserError
from recsys_lab.export.inputs import RawInputs
from recsys_lab.export.served import lookup
from recsys_lab.export.tables import decoded, encoded

CELLS = st.one_of(
    st.text(st.sampled_from(" \t\n-0123.eE+aN_é"), max_size=8),
    st.sampled_from(["True", " TRUE", "nan", "NaN ", "-0", "-0.0", "3.0", "3.", "007", "1e5", "inf", "٣.0", ""]),
    st.floats(width=32).map(str),
    st.integers().map(str),
)


@given(CELLS)
@example(" -0 ")
@settings(max_examples=300, deadline=None)
def test_a_value_is_spelled_as_in_training(cell: str) -> None:
    assert lookup.word_of(cell) == encode.categories(pl.Series([cell, "x"]))[0]


@given(st.lists(CELLS, max_size=4), st.sampled_from(["|", "^", ",", " ", encode.JSON]))
@settings(max_examples=300, deadline=None)
def test_the_values_of_a_cell_are_those_of_training(parts: list[str], separator: str) -> None:
    cell = f"[{', '.join(repr(part) for part in parts)}]" if separator == encode.JSON else separator.join(parts)
    expected, lengths = encode.bags(pl.Series("tags", [cell]), separator)
    own = lookup.values_of(cell, separator)
    assert lengths.tolist() == [len(own)] and [lookup.word_of(one) for one in own] == expected.to_list()


@given(CELLS, st.sampled_from(encode.SCALES))
@settings(max_examples=300, deadline=None)
def test_a_number_is_scaled_as_in_training(cell: str, scale: str) -> None:
    known = (0.3, 2.5)
    try:
        expected = encode.numbers(pl.Series("x", [cell]), lambda row: "row", np.array([True]), scale, known)[0][0]
    except UserError:
        expected = None
    try:
        own = torch.tensor(lookup.number_of(cell, scale, *known), dtype=torch.float64).float().item()
    except ValueError:
        own = None
    assert (own is None) == (expected is None) and (own is None or abs(own - expected) <= 1e-6 * max(1.0, abs(expected)))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, max_size=30), st.integers(2, 50))
@settings(max_examples=100, deadline=None)
def test_words_are_found_where_they_lie_and_hashed_as_in_training(tmp_path_factory, words: list[str], rows: int) -> None:
    file = tmp_path_factory.mktemp("words") / "words.safetensors"
    ordered = sorted(words, key=str.encode)
    RawInputs([], {}, {"a.b": (ordered, np.arange(len(words)) + 2)}).write_words(file)
    with safe_open(file, "pt") as opened:
        known = lookup.Words(opened, "a.b")
        assert [known.row(word) for word in ordered] == list(range(2, len(words) + 2)) and known.row("no such") in (None, *range(2, 40))
        assert known.row("".join(words) + "z") is None
    cells = encode.categories(pl.Series(["x", *words]))
    assert [lookup.hashed_row_of(word, rows) for word in ["x", *words]] == encode.hashed(cells, rows)[0].tolist()


@given(st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_a_row_of_int8_is_off_by_half_a_step_of_its_range(rows: list[list[float]]) -> None:
    table = torch.tensor(rows)
    steps = (table.max(1).values - table.min(1).values) / 255
    off = (decoded(encoded(table, "int8")) - table).abs().max(1).values
    assert (off <= 0.5 * steps + 1e-5 * table.abs().max() + 1e-30).all()


def test_the_folder_of_served_files_is_whole() -> None:
    folder = Path(lookup.__file__).parent
    assert {path.name for path in folder.glob("*.py")} == {"__init__.py", "serve.py", "lookup.py"}
