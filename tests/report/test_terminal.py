"""`python -m recsys_lab`: show and compare, as a user calls them."""

from __future__ import annotations

import json

import pytest

from recsys_lab.__main__ import COMMANDS, main
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
