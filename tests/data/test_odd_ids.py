"""Ids, dates and separators of logs as strangers write them: read right, or refused in one line with what helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.helpers import write
from tests.data.test_interactions_files import MIXED, ROWS, TIMED, histories, opened, refused

HEADER = "user_id,item_id,timestamp"


@pytest.mark.parametrize("word", ["NULL", "NA", "nan", "None", "\\N", "<NA>"])
@pytest.mark.parametrize("column", ["user", "item"])
def test_words_for_missing_ids_are_no_ids(tmp_path: Path, word: str, column: str) -> None:
    missing = f"{word},7,900000000" if column == "user" else f"3,{word},900000000"
    write(tmp_path / "log.csv", [HEADER, *(f"{u},{i},{t}" for u, i, t in MIXED), missing])
    assert f"log.csv:14: no {column}" in refused(opened, tmp_path)
    assert histories(opened(tmp_path, on_bad_line="skip")) == ROWS


def test_ids_with_and_without_a_point_are_one(tmp_path: Path) -> None:
    """As pandas writes those of a part in which some are missing."""
    write(tmp_path / "log.csv", [HEADER, *(f"{u}{'.0' * (n % 2)},{i}{'.0' * (n % 3 == 0)},{t}" for n, (u, i, t) in enumerate(MIXED))])
    data = opened(tmp_path)
    assert histories(data) == ROWS and [*data.item_names()] == ["7", "9", "20", "100"]


def test_copies_of_interactions_are_said(tmp_path: Path) -> None:
    lines = [f"{u},{i},{t}" for u, i, t in MIXED]
    write(tmp_path / "log.csv", [HEADER, *lines, *lines[:4]])
    assert any(note.startswith("4 interactions have the user, the item and the time of another") for note in opened(tmp_path).notes)


@pytest.mark.parametrize("form", ["[{}]", "{}|7|9", '"[""a"", ""{}""]"'])
def test_lists_of_items_are_told_how_to_become_a_log(tmp_path: Path, form: str) -> None:
    cells = [form.format(i) for _, i, _ in MIXED]
    write(tmp_path / "log.csv", ["user_id,item_id", *(f"{n},{cell}" for n, cell in enumerate(cells))])
    message = refused(opened, tmp_path)
    assert "the items of a line are a list" in message and ".explode('item_id')" in message


def moments(form: str) -> list[str]:
    """Lines with times 100,000 seconds apart, so that days reach beyond 12."""
    moment = {t: np.datetime64(900_000_000 + 100_000 * n, "s").item() for n, (_, _, t) in enumerate(TIMED)}
    return [f'{u},{i},"{moment[t].strftime(form)}"' for u, i, t in MIXED]


DATES = ["%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%Y.%m.%d %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M:%S %p"]
DATES += ["%m/%d/%Y, %I:%M %p", "%d-%m-%Y %H:%M", "%Y-%m-%d %I:%M:%S %p"]


@pytest.mark.parametrize("form", [*DATES, "%-m/%-d/%Y %-H:%M"])
def test_dates_of_any_country_order_a_log(tmp_path: Path, form: str) -> None:
    write(tmp_path / "log.csv", [HEADER, *moments(form)])
    assert histories(opened(tmp_path)) == ROWS


def test_a_date_that_can_be_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", [HEADER, *(f"{u},{i},0{1 + n % 9}/0{1 + n % 7}/2017" for n, (u, i, _) in enumerate(MIXED))])
    message = refused(opened, tmp_path)
    assert "the day or the month may stand first" in message and "2017-08-14" in message


def test_a_date_that_the_first_ones_contradict_is_named(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", [HEADER, *moments("%d.%m.%Y"), "3,7,31.02.2017"])
    assert "log.csv:14: the time is not" in refused(opened, tmp_path)


@pytest.mark.parametrize("separator", ["^", "~", "\x02"])
def test_rare_separators_are_read_where_no_other_fits(tmp_path: Path, separator: str) -> None:
    write(tmp_path / "log.txt", [line.replace(",", separator) for line in [HEADER, *(f"{u},{i},{t}" for u, i, t in MIXED)]])
    assert histories(opened(tmp_path)) == ROWS


def test_a_line_without_separators_says_which_there_are(tmp_path: Path) -> None:
    write(tmp_path / "log.txt", [line.replace(",", "/") for line in [HEADER, *(f"{u},{i},{t}" for u, i, t in MIXED)]])
    assert "no fields can be told apart" in refused(opened, tmp_path)


def test_columns_of_shops_are_known(tmp_path: Path) -> None:
    lines = [f'5{n},{i},"a, b",6,{t},2.55,{u}.0' for n, (u, i, t) in enumerate(MIXED)]
    write(tmp_path / "log.csv", ["InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID", *lines])
    assert histories(opened(tmp_path)) == ROWS


@pytest.mark.parametrize("columns", [None, ["user", "item", "time"]])
def test_blanks_after_commas_are_of_no_field(tmp_path: Path, columns: list[str] | None) -> None:
    write(tmp_path / "log.csv", [*(["user_id, item_id, timestamp"] if columns is None else []), *(f"{u}, {i}, {t}" for u, i, t in MIXED)])
    assert histories(opened(tmp_path, columns=columns)) == ROWS
