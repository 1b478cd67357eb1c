"""`python -m recsys_lab`: show and compare, as a user calls them."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from recsys_lab.__main__ import COMMANDS, main
from recsys_lab.report import say
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import parts_of
from tests.report.fake_run import failed, make_result, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def called(capsys, *argv) -> tuple[int, str, str]:
    code = main([str(a) for a in argv])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_show_prints_measured_and_simulated_apart_in_80_columns(run, capsys):
    code, out, err = called(capsys, "show", run)
    assert code == 0 and not err
    assert max(map(len, out.splitlines())) <= 80
    for words in (
        "Quality (measured)",
        "Iteration (measured)",
        "Iteration (simulated)",
        "Collectives (simulated)",
        "0.77310",
        "41,250",
        "109,226,667",
    ):
        assert words in out
    assert "..." not in out


def test_show_json_is_the_record(run, capsys):
    _, out, _ = called(capsys, "show", run, "--json")
    assert json.loads(out) == json.loads((run / "result.json").read_text())


def test_show_plan_names_every_table_of_both_plans(run, capsys):
    _, out, _ = called(capsys, "show", run, "--plan")
    assert "Plan for h100x64" in out and "Plan that trained here in its place" in out
    assert out.count("cat_7") >= 2 and "40,000,000" in out and "400,000" in out
    _, out, _ = called(capsys, "show", run, "--plan", "--json")
    assert json.loads(out) == json.loads((run / "plan.json").read_text())


def test_show_says_why_a_part_is_absent(tmp_path, capsys):
    _, out, _ = called(capsys, "show", write_run(tmp_path / "a", make_result("simulate")))
    assert "not trained: mode=simulate" in out
    _, out, _ = called(capsys, "show", write_run(tmp_path / "b", failed(make_result(), "no [bold]room[/bold]")))
    assert "the run failed: UserError: no [bold]room[/bold]" in out


def test_compare_shows_what_differs(run, tmp_path, capsys):
    other = write_run(tmp_path / "other", make_result(auc=0.7831, seed=2))
    code, out, _ = called(capsys, "compare", run, other)
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    assert "0.78310 (+0.01000)" in out and "(x1.000)" in out
    _, out, _ = called(capsys, "compare", run, other, "--json")
    data = json.loads(out)
    assert data["config"] == {"seed": [1, 2]} and data["figures"]["validation AUC"] == [0.7731, 0.7831]
    assert data["runs"] == [str(run), str(other)]


def test_compare_of_many_runs_loses_no_digit(tmp_path, capsys):
    folders = [write_run(tmp_path / f"r{i}", make_result(hosts=128), hosts=128) for i in range(4)]
    _, out, _ = called(capsys, "compare", *folders)
    assert max(map(len, out.splitlines())) <= 80 and out.count("1,747,626,667") == 4


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["shwo"], f"no such command; given shwo; allowed: {', '.join(COMMANDS)}; did you mean 'show'?"),
        (["show"], "the following arguments are required: run"),
        (["show", "nowhere"], "nowhere: no such folder"),
        (["compare", "a"], "one run has nothing to be compared with"),
        (["show", "a", "--jsn"], "unrecognized arguments: --jsn"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_code_2(argv, message, capsys):
    code, out, err = called(capsys, *argv)
    assert code == 2 and not out and err.count("\n") == 1 and message in err


def test_help_lists_the_commands(capsys):
    code, out, _ = called(capsys, "--help")
    assert code == 0 and all(name in out for name in ("doctor", "show", "compare"))
    with pytest.raises(SystemExit, match="0"):
        main(["show", "--help"])


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
    say.found("auc", 0.5, words)
    assert any(line.endswith(" ".join(f"'{word}'" if "[" in word else word for word in words)) for line in out.getvalue().splitlines())


def test_a_wide_table_is_shown_in_parts_that_fit():
    columns = ("model", "seeds", "a", "b", "c")
    made = Table("Speed", columns, (("dcn", "3", "1" * 30, "2" * 30, "3" * 30),), "a note", columns[1:])
    assert parts_of(made, 200, ("model", "seeds")) == [made]
    parts = parts_of(made, 70, ("model", "seeds"))
    assert [part.columns for part in parts] == [("model", "seeds", "a"), ("model", "seeds", "b"), ("model", "seeds", "c")]
    assert [part.title for part in parts] == ["Speed", "Speed, continued", "Speed, continued"]
    assert [part.note for part in parts] == ["", "", "a note"]
    assert [part.rows for part in parts] == [(("dcn", "3", n * 30),) for n in "123"]
