"""Studies: every table and figure of the papers is in one place, a verdict says what the figures say, and a run leaves what it must."""

from __future__ import annotations

import csv
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.__main__ import COMMANDS, main
from recsys_lab.commands.show import main as show
from recsys_lab.commands.studies import chosen
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.record.result import read_result
from recsys_lab.studies import batch, results
from recsys_lab.studies.catalogue import LONG, QUICK, WITHOUT, Item, item_of, items, papers, studies_of, with_studies
from recsys_lab.studies.code import ROOT
from recsys_lab.studies.compared import draw_compared
from recsys_lab.studies.function import function_of, hints_of, option_value
from recsys_lab.studies.run import run_study
from recsys_lab.studies.study import Line, Study
from recsys_lab.studies.verdict import Tolerance, judge, percent
from recsys_lab.studies.waiting import Waiting

STUDIES = [item for item in items() if item.target]


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.name)
def test_every_table_and_figure_of_a_paper_is_in_exactly_one_place(paper) -> None:
    names = [item.name for item in paper.items]
    assert len(names) == len(set(names))
    printed = {f"table{i + 1}" for i in range(paper.tables)} | {f"figure{i + 1}" for i in range(paper.figures)}
    numbered = {name for name in names if name[-1].isdigit() and name.startswith(("table", "figure"))}
    assert numbered == printed
    assert all(item.state in WITHOUT and len(item.why) > 10 for item in paper.items if not item.target)


@pytest.mark.parametrize("item", [item for item in items() if not item.target], ids=lambda item: item.id)
def test_what_has_no_study_names_the_nearest_thing_that_there_is(item: Item) -> None:
    """A study of the paper, a command, or a file; and the command line says so in place of "no such choice"."""
    first = re.split(r"[,;]", item.nearest)[0]
    is_command = first.startswith("python -m recsys_lab ") and first.split()[3] in COMMANDS
    assert is_command or first in studies_of(item.paper) or (ROOT / first).exists()
    with pytest.raises(UserError, match="has no study") as refused:
        with_studies(["seed=1", f"experiment={item.id}"])
    assert item.why in str(refused.value) and str(refused.value).endswith(item.nearest)


def test_other_words_of_a_command_line_are_left_to_hydra() -> None:
    with_studies(["experiment=frappe", "experiment=dmt/table3,neo/figure99", "model=dcn", "+experiment=dmt/figure2"])


def test_all_papers_are_there() -> None:
    assert {paper.name for paper in papers()} == {"cpu_dlrm", "dlrm_v4", "dmt", "emulated", "flexshard", "neo", "torchrec"}
    assert sum(paper.tables + paper.figures for paper in papers()) == 64


@pytest.mark.parametrize("item", STUDIES, ids=lambda item: item.id)
def test_a_study_names_its_function_and_all_its_options(item: Item) -> None:
    assert item.target is not None and item.config is not None
    assert set(hints_of(function_of(item.target))) == set(item.options)
    assert item.commands[0] == f"python run.py experiment={item.id}" and item.budget in (QUICK, LONG)
    assert item.command == item.commands[0] or (item.budget == LONG and item.command.startswith(item.commands[0]))
    study = yaml.safe_load(item.config.read_text(encoding="utf-8"))["study"]
    assert study["question"].endswith("?") and study["hypothesis"].endswith(".") and study["within"] >= 0


#: In place of run.py: table5 leaves a result at once, others take a minute.
STAND_IN = """
import shutil, sys, time
if "table5" in sys.argv[1]:
    shutil.copy("told.json", sys.argv[2].split("=")[1].strip("'") + "/result.json")
else:
    time.sleep(60)
"""

figures = st.floats(0.1, 1e6)
lines = st.lists(
    st.builds(
        Line,
        st.text("abc", min_size=1),
        figures,
        st.none() | figures,
        st.sampled_from(["ms", "%"]),
        st.just("simulated"),
        *[st.booleans()] * 2,
    ),
    max_size=8,
)
statements = st.lists(st.tuples(st.text("xyz", min_size=1), st.booleans()), min_size=1, max_size=3)


@given(lines, statements, st.floats(0, 2), st.floats(0, 50))
def test_a_study_is_reproduced_if_every_judged_figure_is_within_and_every_statement_holds(lines, statements, share, points) -> None:
    verdict = judge(Study("s", "q", tuple(lines), tuple(statements)), Tolerance(share, points))
    judged = [line for line in lines if line.published is not None and not line.by_construction and not line.repeated]
    within = [abs(line.error or 0) <= (points if line.unit == "%" else share) for line in judged]
    agrees = "reproduced" if judged else "statements_only"
    assert verdict.state == (agrees if all(within) and all(holds for _, holds in statements) else "deviates")
    assert verdict.sentence.startswith(verdict.state.replace("_", " ").capitalize())
    assert sum(errors.count for errors in (verdict.relative, verdict.points) if errors) == len(judged)
    assert all(text in verdict.sentence for text, holds in statements if not holds)
    for errors in (verdict.relative, verdict.points):
        assert errors is None or (errors.mean <= errors.worst * (1 + 1e-12) and (errors.beyond == 0 or errors.worst_of in verdict.sentence))


@given(lines, st.floats(1.01, 10))
def test_what_a_fit_used_is_told_and_not_judged(lines, factor) -> None:
    """However far off such a figure is, the verdict stays; and figures in the same proportions are in the same order."""
    sentences = (("it holds", True),)
    fitted = [replace(line, by_construction=True, ours=line.ours * factor) for line in lines]
    verdict = judge(Study("s", "q", tuple(fitted), sentences), Tolerance(0.0, 0.0))
    assert verdict.state == "statements_only" and verdict.by_construction == sum(line.published is not None for line in lines)
    scaled = [replace(line, by_construction=False, repeated=False, ours=(line.published or 1.0) * factor) for line in lines]
    right, of = judge(Study("s", "q", tuple(scaled), sentences), Tolerance(0.0, 0.0)).orders
    assert right == of


@pytest.mark.parametrize("compares", ["complexity_only", "generated_data"])
def test_what_stands_for_the_subject_is_never_reproduced(compares: str) -> None:
    """Agreement gets its own word; what deviates still deviates."""
    lines = (Line("FLOPs", 1.0, 1.0),)
    agreed = judge(Study("s", "q", lines), Tolerance(0.1, 1.0), compares)
    assert agreed.state == compares and agreed.sentence.startswith(compares.replace("_", " ").capitalize() + ": 1 figure within")
    assert judge(Study("s", "q", lines, (("it holds", False),)), Tolerance(0.1, 1.0), compares).state == "deviates"


def test_a_published_figure_counts_once() -> None:
    """Two units of one figure: both are shown, one is judged."""
    lines = (Line("memory, GiB", 1.0, 1.0), Line("memory, MB", 9.0, 1.0, repeated=True))
    verdict = judge(Study("s", "q", lines), Tolerance(0.1, 1.0))
    assert verdict.state == "reproduced" and verdict.relative is not None and verdict.relative.count == 1


def test_no_committed_verdict_says_more_than_it_compares() -> None:
    for item in STUDIES:
        verdict = results.committed_verdicts(item.paper).get(item.name)
        if verdict and verdict["state"] == "reproduced":
            assert verdict["figures"]["relative"] or verdict["figures"]["points"], item.id
            assert item.config is not None and "compares:" not in item.config.read_text(encoding="utf-8"), item.id


def test_percentages_have_two_digits_that_say_something() -> None:
    assert [percent(share) for share in (0.00053, 0.012, 0.14, 0.999, 1.02, 112.4)] == [
        "0.053 %",
        "1.2 %",
        "14 %",
        "100 %",
        "102 %",
        "11,240 %",
    ]


def test_a_study_without_figures_to_judge_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="nothing to judge"):
        judge(Study("s", "q", (Line("a", 1.0),)), Tolerance(0.1, 1.0))


def test_options_are_read_by_their_annotation() -> None:
    assert option_value(list[int], "2,4", "--ranks") == [2, 4] and option_value(str | None, "7", "--root") == "7"
    with pytest.raises(UserError, match="--seeds"):
        option_value(int, "nine", "--seeds")


def test_a_study_leaves_its_folder_and_is_known_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item, folder = item_of("flexshard/figure3"), tmp_path / "studies" / "flexshard" / "figure3"
    folder.mkdir(parents=True)
    run_study(of_words([f"experiment={item.id}"], where="studies"), folder)
    assert "Statements only: 2 of 2 statements hold." in capsys.readouterr().out
    record = read_result(folder)
    assert record["status"] == "completed" and record["measured"] is record["simulated"] is record["quality"] is record["plan"] is None
    assert record["study"]["verdict"]["state"] == "statements_only" and record["study"]["origins"] == ["simulated"]
    assert {path.name for path in folder.iterdir()} == {
        *("config.yaml", "environment.json", "result.json", "report.html", "table.md", "table.csv", "plot.svg", "plot.png", "wandb")
    }
    assert list((folder / "wandb").glob("offline-run-*/files/media/table/study/lines_*"))
    with (folder / "table.csv").open(encoding="utf-8") as text:
        assert [row["what"] for row in csv.DictReader(text)] == [line["what"] for line in record["study"]["found"]["lines"]]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page and "<script" not in page and "src=" not in page
    assert show([str(folder)]) == 0 and "**Verdict.** Statements only" in capsys.readouterr().out
    result = results.known(item, tmp_path)
    assert result.state == "statements_only" and result.current and not result.options and batch.is_there(item, tmp_path)
    assert [one.folder for one in batch.run_all([item], tmp_path, False, lambda one, seconds: None)] == [folder]


def test_a_result_by_other_code_or_with_other_options_is_made_again(tmp_path: Path) -> None:
    item = item_of("dmt/figure10")
    study = {"verdict": {"state": "deviates", "sentence": "Deviates: so.", "why": "Because."}, "origins": ["simulated"], "seconds": 1.0}
    folder = tmp_path / "2026-01-01_00-00-00_dmt_figure10"
    folder.mkdir()
    for code, gpus, again in (("another", 512, True), (results.code_fingerprint(), 64, True), (results.code_fingerprint(), 512, False)):
        record = {"error": None, "study": study | {"code": code, "options": {"gpus": gpus}}}
        (folder / "result.json").write_text(json.dumps(record))
        result = results.known(item, tmp_path)
        assert result.sentence == f"Deviates: so. {item.why}" and result.folder == folder
        assert result.options == ({} if gpus == 512 else {"gpus": 64})
        assert batch.is_there(item, tmp_path) != again


def test_what_was_run_can_be_recorded_for_those_who_have_not_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "EXPERIMENTS", tmp_path / "experiments")
    item, folder = item_of("flexshard/table5"), tmp_path / "2026-01-01_00-00-00_flexshard_table5"
    folder.mkdir()
    verdict = {"state": "reproduced", "sentence": "Reproduced: so.", "why": None}
    record = {"verdict": verdict, "origins": ["fitted"], "seconds": 1.0, "code": "another", "options": {"root": str(tmp_path)}}
    (folder / "result.json").write_text(json.dumps({"study": record}))
    assert [path.parent.name for path in results.record_verdicts(tmp_path)] == ["flexshard"]
    committed = results.committed_verdicts("flexshard")
    assert list(committed) == ["table5"] and committed["table5"]["options"] == {"root": "DIR"}
    assert committed["table5"]["command"] == "python run.py experiment=flexshard/table5 study.root=DIR"
    elsewhere = results.known(item, tmp_path / "nothing")
    assert (elsewhere.state, elsewhere.sentence, elsewhere.folder) == ("reproduced", "Reproduced: so.", None)
    assert results.known(item_of("flexshard/table6"), tmp_path / "nothing").state == "not_run"


def test_a_study_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    broken = Item("flexshard", "nothing", "no.such.function", budget=QUICK)
    outcomes = batch.run_all([broken, item_of("flexshard/figure3")], tmp_path, False, lambda one, seconds: None)
    assert [one.state for one in outcomes] == ["failed", "statements_only"]
    assert "no such choice" in outcomes[0].sentence


def test_an_interrupted_batch_keeps_what_has_ended_and_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real process is stopped; its folder has the earlier result again, and the record of the one before it is written."""
    monkeypatch.setattr(results, "EXPERIMENTS", tmp_path / "experiments")
    monkeypatch.setattr(batch, "ROOT", tmp_path)
    runs, record = tmp_path / "runs", {"origins": ["fitted"], "seconds": 1.0, "code": results.code_fingerprint(), "options": {}}
    record["verdict"] = {"state": "reproduced", "sentence": "Reproduced: so.", "why": None}
    for name in ("table5", "figure3"):
        (runs / "studies" / "flexshard" / name).mkdir(parents=True)
    earlier = runs / "studies" / "flexshard" / "figure3" / "result.json"
    earlier.write_text(json.dumps({"study": record | {"code": "another"}}))
    (tmp_path / "told.json").write_text(json.dumps({"study": record}))
    (tmp_path / "run.py").write_text(STAND_IN)

    def interrupt(waiting: Waiting, seconds: float) -> None:
        if waiting.number == 1 and seconds:
            raise KeyboardInterrupt

    monkeypatch.setattr(Waiting, "tick", interrupt)
    began = time.monotonic()
    assert main(["studies", "--run", "flexshard/table5", "flexshard/figure3", "--runs", str(runs), "--record"]) == 130
    assert time.monotonic() - began < 20
    assert "1 of 2 studies have ended" in capsys.readouterr().err
    assert set(results.committed_verdicts("flexshard")) == {"table5", "figure3"} and earlier.is_file()
    assert not list(runs.rglob("*.before"))


def test_lines_say_how_long_a_batch_takes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Waiting([("dmt/figure10", 100.0), ("dmt/table3", None)]) as waiting:
        for now in (1.0, 12.0, 13.0, 130.0):
            waiting.tick(now)
        waiting.ended(200.0)
        now = 210.0
        waiting.tick(10.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "dmt/figure10 (1 of 2): 12 of 120 s (10%) after 12 s, about 2 min left",
        "dmt/figure10 (1 of 2): 100 of 120 s (83%) after 130 s, about 20 s left",
        "dmt/table3 (2 of 2): 110 of 120 s (92%) after 210 s, about 30 s left",  # the machine is half as fast as it was
    ]


def test_the_command_lists_all_and_refuses_what_there_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studies", "--json", "--runs", str(tmp_path)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert sum(record["states"].values()) == len(record["studies"]) == len(items())
    assert main(["studies", "--runs", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "needs hardware" in output and "python run.py experiment=dmt/frappe" in output
    assert main(["studies", "--run", "flexshard/table66"]) == 2 and "flexshard/table6" in capsys.readouterr().err
    assert main(["studies", "--run", "dmt/figure6"]) == 2 and "needs hardware" in capsys.readouterr().err
    assert {item.budget for item in chosen(["quick"])} == {QUICK} and len(chosen(["all", "flexshard/table6"])) == len(STUDIES)


def test_a_study_without_a_picture_gets_one_of_its_lines(tmp_path: Path) -> None:
    own = Study("told", "q", (Line("a", 1.0, 1.1, "ms"), Line("b", 1.0, 2.0, "ms", by_construction=True), Line("c", 30.0, 31.0, "%")))
    bare = Study("bare", "q", (Line("a", 1.0), Line("b", 2.0)))
    for study in (own, bare):
        assert [path.suffix for path in draw_compared(study, tmp_path) if path.stat().st_size > 5_000] == [".svg", ".png"]
