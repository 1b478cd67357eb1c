"""What a run says while it goes, and tables in a terminal of any width."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from recsys_lab.report import say
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import broken, console, parts_of, print_table
from recsys_lab.units import counted, grid


@pytest.mark.parametrize("width", [80, 120])
def test_lines_wrap_between_words_and_keep_brackets(width, monkeypatch):
    """Rich would take `[price,hour]` for a style and swallow it; a terminal would break a line within a word."""
    out = io.StringIO()
    made = Console(file=out, highlight=False, soft_wrap=True, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(say, "CONSOLE", made)
    words = ["data.dense=[price,hour]", *(f"some.key.of.the.config={n}" for n in range(12))]
    say.job(0, words)
    say.sweep("1 of 2 jobs done")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width and " ".join(out.getvalue().split()) == f"job 0 {' '.join(words)} sweep 1 of 2 jobs done"
    say.best("auc", 0.5, words)
    assert any(line.endswith(" ".join(f"'{word}'" if "[" in word else word for word in words)) for line in out.getvalue().splitlines())


def test_sentences_wrap_with_nothing_behind_their_lines(capsys: pytest.CaptureFixture) -> None:
    words = "a verdict of many words, one of them a-word-with-hyphens, " * 4
    out = console(without=30)
    out.print(f"{words.strip()}\n\n  torchrec: a row", style="bold")
    print_table(out, Table(words.strip(), ("a",), (("1",),), note=words.strip()))
    lines = capsys.readouterr().out.splitlines()
    sentences = [line for line in lines if " " in line.strip() and "torchrec" not in line]
    assert len(sentences) == 24 and not [line for line in sentences if line != line.rstrip() or len(line) > 30]
    assert "  torchrec: a row" in lines and " ".join(sentences) == " ".join([words.strip()] * 3)


@pytest.mark.parametrize(("ranks", "says"), [(1, "1 rank"), (4, "4 ranks")])
def test_the_summary_names_the_batch_and_which_statistic_a_figure_is(
    ranks: int, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(say, "CONSOLE", Console(file=out, highlight=False, soft_wrap=True))
    times = {"median": 24.8, "p95": 31.06}
    measured = {"examples_per_second": 41250.2, "iteration_ms": times, "world_size": ranks}
    say.finished({"measured": measured, "quality": None}, tmp_path, 1024)
    line = "41,250 examples/s on average, 24.8 ms an iteration (median; 95th percentile 31.1), batch 1,024 over"
    assert out.getvalue().splitlines()[0].split(maxsplit=1) == ["measured", f"{line} {says} here"]


@pytest.mark.parametrize("width", [44, 60, 80])
def test_long_names_break_between_their_parts(width: int, capsys: pytest.CaptureFixture) -> None:
    names = ("recsys_lab.sharders.torchrec.TorchRec", "/data/shop/clicks_of_may/train.csv", "hydra.run.dir=a_folder,of-many")
    rows = tuple((name, f"it is {name}", "1.5") for name in names)
    out = console(without=width)
    print_table(out, Table("names", ("name", "what it is", "ms"), rows, right=("ms",)))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    pieces = {piece for line in lines[3:] for piece in line.split()}
    for piece in pieces:
        assert any(f" {name} ".find(piece) > 0 and piece[-1] in "./_=,-" or name.endswith(piece) for name in names) or piece in (
            "it",
            "is",
            "1.5",
        )


def test_a_long_name_is_whole_again_when_its_lines_are_joined() -> None:
    name = "trainer.early_stopping.patience=4"
    assert broken(name, 12) == "trainer.\nearly_\nstopping.\npatience=4" and broken(f"of {name}", 40) == f"of {name}"
    assert broken("  indented", 12) == "  indented" and broken("two words\nand more of them", 10) == "two words\nand more\nof them"


def test_the_best_is_bold_in_a_terminal() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard", highlight=False)
    print_table(out, Table("t", ("a", "b"), (("x", "1"), ("y", "2")), right=("b",), bold=frozenset({(1, "b")})))
    assert isinstance(out.file, io.StringIO) and "\x1b[1m2\x1b[0m" in out.file.getvalue() and "\x1b[1m1" not in out.file.getvalue()


def test_counts_of_one_are_singular() -> None:
    assert [counted(1, "rank"), counted(1024, "rank"), counted(0, "process")] == ["1 rank", "1,024 ranks", "0 processes"]
    assert (grid(1, 4), grid(8, 1), grid(2, 2, "process")) == ("1 host x 4 ranks", "8 hosts x 1 rank", "2 hosts x 2 processes")


def test_a_wide_table_is_shown_in_parts_that_fit():
    columns = ("model", "seeds", "a", "b", "c")
    made = Table("Speed", columns, (("dcn", "3", "1" * 30, "2" * 30, "3" * 30),), "a note", columns[1:])
    assert parts_of(made, 200, ("model", "seeds")) == [made]
    parts = parts_of(made, 70, ("model", "seeds"))
    assert [part.columns for part in parts] == [("model", "seeds", "a"), ("model", "seeds", "b"), ("model", "seeds", "c")]
    assert [part.title for part in parts] == ["Speed", "Speed, continued", "Speed, continued"]
    assert [part.note for part in parts] == ["", "", "a note"]
    assert [part.rows for part in parts] == [(("dcn", "3", n * 30),) for n in "123"]


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_numbers_are_never_broken_and_every_column_is_shown(width: int, capsys: pytest.CaptureFixture) -> None:
    """Of figures and of text with numbers in it: a table that is too wide comes in parts."""
    columns = ("sharder", "ms", "90 %", "samples/s", "GB", "$/1e9", "why")
    row = ("flexshard_3tier", "14,267.58", "123.4–5678.9", "36,013,763", "78.14", "1,971.25", "compute 1,264.24 -> 1,284.42 ms of words")
    print_table(console(without=width), Table("Sharders", columns, (row,), "a note", columns[1:6]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width and lines.count("a note") == 1
    words = " ".join(lines).split()
    assert not [number for cell in row[1:] for number in cell.split() if any(map(str.isdigit, number)) and number not in words]
    assert set(columns[1:]) - {"90 %"} <= set(words) and "90 %" in " ".join(lines)
