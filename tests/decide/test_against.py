"""`decide --against OLD.json`: what changed by hand, codes 3 and 5, the Markdown, and answers that cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsys_lab.__main__ import main
from recsys_lab.decide.against import Earlier, compare, described, markdown, read_answer, tables
from recsys_lab.decide.question import parse_question
from recsys_lab.decide.rows import Row
from recsys_lab.errors import LimitPassed, PlanDoesNotFit, UserError

QUESTION = parse_question(["model=dcn", "data=random", "clusters=h100x16:2", "batch=65536"])


def row(sharder: str, ms: float | None, usd: float | None = None, gb: float = 10.0, profile: str = "torchrec") -> Row:
    able = ms is not None
    hours = ms / 10 if able else None
    row = Row("h100x16", sharder, "fp32", "adam", profile, 65536, 4096, 16, able, ms, None, None, usd, None, hours)
    return replace(row, memory_gb=gb) if able else replace(row, why_not="rank 3 lacks 7.0 GB")


def written(path: Path, rows: list[Row], best: Row) -> Path:
    """As `--json` writes what is read of an answer."""
    figures = [vars(one) for one in rows]
    path.write_text(json.dumps(described(QUESTION) | {"rows": figures, "winner": {"row": vars(best)}, "sentences": []}))
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    rows = [row("neo_4d", 10.0, 2.0), row("dmt", 20.0, 4.0), row("torchrec", None), row("gone", 1.0, 1.0), row("lost", 5.0, 3.0)]
    return written(tmp_path / "old.json", rows, rows[0])


def test_what_changed_by_hand(old: Path) -> None:
    best = row("neo_4d", 11.0, 2.0, gb=12.0)
    found = compare(read_answer(old, QUESTION), QUESTION, [best, row("dmt", 20.0, 4.0), row("torchrec", 7.0, 9.0), row("lost", None)], best)
    assert found.best.increase == pytest.approx({"time": 0.1, "memory": 0.2, "cost": 0.0})
    assert [one.name.split()[1] for one in found.rows] == ["neo_4d", "dmt"]  # those that fit in both
    assert found.lost == ("h100x16 lost fp32 adam",) and found.gained == ("h100x16 torchrec fp32 adam",)
    head, changed = tables(found)
    assert head.rows[0] == ("ms an iteration", "10.00", "11.00", "+10.0%") and "cheapest row is the same" in head.note
    assert changed.title == "1 of 2 rows changed" and changed.rows[0][2:] == ("11.00 (+10.0%)", "12.00 (+20.0%)", "2.00 (+0.0%)")
    assert found.mistake(None) is None and found.mistake(0.2) is None  # 20 % is no more than 20 %
    mistake = found.mistake(0.05)
    assert isinstance(mistake, LimitPassed) and mistake.exit_code == 5
    assert "given +10.0% time, +20.0% memory; allowed: +5.0%" in str(mistake)


def test_the_best_that_no_longer_fits_is_code_3_though_another_does(old: Path) -> None:
    best = row("dmt", 20.0, 4.0)
    found = compare(read_answer(old, QUESTION), QUESTION, [row("neo_4d", None), best], best)
    mistake = found.mistake(9.0)
    assert isinstance(mistake, PlanDoesNotFit) and mistake.exit_code == 3
    assert str(mistake) == "h100x16 neo_4d fp32 adam: no longer fits: rank 3 lacks 7.0 GB; the cheapest now is h100x16 dmt fp32 adam"
    assert "It was h100x16 neo_4d fp32 adam." in tables(found)[0].note


def test_without_a_price_in_both_device_hours_are_compared(old: Path) -> None:
    best = row("neo_4d", 5.0)
    found = compare(read_answer(old, QUESTION), QUESTION, [best], best)
    assert found.best.increase["cost"] == pytest.approx(-0.5) and tables(found)[0].rows[2][0] == "device-hours per 1e9 samples"


def test_the_markdown_is_a_table_and_says_the_mistake_first(old: Path, tmp_path: Path) -> None:
    best = row("neo_4d", 11.0, 2.0)
    earlier = Earlier.of(QUESTION, str(old), "5%", str(tmp_path / "a.md"))
    assert earlier is not None
    found = earlier.compare([best], best)
    with pytest.raises(LimitPassed):
        earlier.end(found)
    text = (tmp_path / "a.md").read_text()
    assert text == markdown(found, found.mistake(0.05)) and text.startswith("### decide: dcn, 65,536 samples an iteration\n\n**h100x16 neo")
    assert "\n| figure | before | now | change |\n| --- | ---: | ---: | ---: |\n| ms an iteration | 10.00 | 11.00 | +10.0% |\n" in text


def test_a_table_has_twenty_rows_at_most(tmp_path: Path) -> None:
    then = [row("dmt", 10.0, 1.0, profile=str(n)) for n in range(40)]
    now = [row("dmt", 10.0 + n, 1.0, profile=str(n)) for n in range(40)]
    found = compare(read_answer(written(tmp_path / "old.json", then, then[0]), QUESTION), QUESTION, now, now[0])
    changed = tables(found)[1]
    assert [cells[1] for cells in changed.rows] == [str(n) for n in range(39, 19, -1)]
    assert changed.note == "19 more changed. 1 row did not change."


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda answer: answer.pop("format"), "an answer of another format; given none; allowed: 1; write it with this version"),
        (lambda answer: answer.update(format=2), "an answer of another format; given 2"),
        (lambda answer: answer.update(model="dlrm"), "an answer of another model; given dlrm; allowed: dcn"),
        (lambda answer: answer.update(batch=64), "an answer of another batch; given 64; allowed: 65536"),
        (lambda answer: answer["rows"][0].pop("fits"), r"rows\[0\].fits is of another shape"),
        (lambda answer: answer["winner"].update(row=None), "winner.row is of another shape"),
    ],
)
def test_an_answer_that_cannot_be_compared_is_one_line(old: Path, change: Callable[[dict], Any], says: str) -> None:
    answer = json.loads(old.read_text())
    change(answer)
    old.write_text(json.dumps(answer))
    with pytest.raises(UserError, match=says):
        read_answer(old, QUESTION)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--against", "none.json"], "none.json: no such file"),
        (["--max-increase", "5%"], "--max-increase: no earlier answer; given 5%"),
        (["--markdown", "a.md"], "--markdown: no earlier answer"),
        (["--against", "old.json", "--max-increase", "much"], "--max-increase: no percentage; given much; allowed: such as 5%"),
        (["--against", "old.json", "--markdown", "a.txt"], "--markdown: no file of this kind; given a.txt"),
    ],
)
def test_wrong_words_are_one_line_before_any_work(
    old: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(old.parent)
    assert main(["decide", "model=dcn", "data=random", "clusters=h100x16:2", "batch=65536", "--json", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and says in err, err


def test_the_command_from_one_answer_to_the_next(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that grows, as a pull request may make it: the same, dearer, and no longer on the cluster."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tables.csv"
    words = ["model=tables", "model.file=tables.csv", "clusters=h100x8:2", "batch=65536", "sharders=torchrec_row_wise", "precisions=fp32"]
    words = ["decide", *words, "optimizers=adam", "profiles=torchrec", "sharder.store=none"]

    def write(rows: int) -> None:
        file.write_text(f"name,rows,dim,mean_ids\na,{rows},64,20\nb,1000,64,1\n")

    write(1_000_000)
    assert main([*words, "--json"]) == 0
    (tmp_path / "old.json").write_text(capsys.readouterr().out)
    against = ["--against", "old.json", "--max-increase", "5%", "--markdown", "a.md"]
    assert main([*words, *against, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["against"]
    assert found["best"]["increase"] == {"time": 0.0, "memory": 0.0, "cost": 0.0} and not found["lost"]
    write(100_000_000)
    assert main([*words, *against]) == 5
    out, err = capsys.readouterr()
    assert "Best: h100x8" in out and err.startswith("error: h100x8 torchrec_row_wise fp32 adam: the best row grew; given ")
    assert "memory" in err and "the best row grew" in (tmp_path / "a.md").read_text()
    write(2_000_000_000)
    assert main([*words, *against]) == 3
    assert "none of 1 combinations fits" in (tmp_path / "a.md").read_text()
