"""Tables as they are published: one line a cell, the best in bold, LaTeX that compiles."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest

from recsys_lab.commands.ablation import main
from recsys_lab.sweeps.ablation import read_ablation, write_ablation
from recsys_lab.sweeps.cells import best, change_tables, comparison_tables, value_tables
from recsys_lab.sweeps.figures import FIGURES
from recsys_lab.sweeps.latex import latex
from tests.sweeps.test_ablation import SIX, sweep

AUC = FIGURES[0]
UP = "AUC \N{UPWARDS ARROW}"
#: Model and sharder, by name the AUC of six seeds.
GRID = {
    ("dlrm", "torchrec"): SIX,
    ("dlrm", "dmt"): [auc + 0.01 for auc in SIX],
    ("dcn", "torchrec"): [auc + 0.05 for auc in SIX],
    ("dcn", "dmt"): [auc + 0.04 for auc in SIX],
}
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here: Debian's texlive-latex-recommended has it")


def column(ablation, name: str = UP, tables=value_tables) -> list[str]:
    table = tables(ablation)[0]
    return [row[table.columns.index(name)] for row in table.rows]


@pytest.mark.parametrize(
    ("cell", "first"),
    [
        ("median", f"{statistics.median(SIX):.4f}"),
        ("median_range", f"{statistics.median(SIX):.4f} [0.7000\N{EN DASH}0.7600]"),
        ("mean_std", f"{statistics.fmean(SIX):.4f} \N{PLUS-MINUS SIGN} {statistics.stdev(SIX):.4f}"),
    ],
)
def test_a_cell_is_one_line_of_what_is_asked(tmp_path: Path, cell, first: str) -> None:
    ablation = read_ablation(sweep(tmp_path / "s", GRID), cell=cell)
    assert column(ablation)[0] == first
    tables = [*value_tables(ablation), *change_tables(ablation), *comparison_tables(ablation)]
    assert not [word for table in tables for row in table.rows for word in row if "\n" in word]
    assert main([str(tmp_path / "s"), "--cell", cell]) == 0 and first in (tmp_path / "s/ablation.md").read_text()


def test_the_best_is_bold_in_every_format(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", GRID)
    ablation = write_ablation(folder)
    assert best(ablation, AUC) == [2]
    words = column(ablation)[2]
    for file, marked in (("md", r"\*\*(.*?)\*\*"), ("html", "<strong>(.*?)</strong>"), ("tex", r"\\textbf{(.*?)}")):
        assert re.findall(marked, (folder / f"ablation.{file}").read_text()) == [words], file  # all other figures are alike


def test_those_alike_in_the_digits_shown_are_best_together_and_other_data_have_a_best_of_their_own(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", {(name, "a"): [auc] for name, auc in zip("abcdef", (0.8, 0.80001, 0.7, 0.6, 0.5, 0.5))})
    assert best(read_ablation(folder), AUC) == [0, 1]
    for job in ("3", "4", "5"):
        path = folder / job / "config.yaml"
        path.write_text(path.read_text().replace("root: null", "root: elsewhere"))
    assert best(read_ablation(folder), AUC) == [0, 1, 3]


def test_a_baseline_for_each_value_of_a_key(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", GRID)
    for asked in ("model", "model,sharder=torchrec"):
        ablation = read_ablation(folder, asked)
        assert ablation.bases.of_rows == (0, 0, 2, 2)
        assert column(ablation, tables=change_tables)[::2] == ["baseline", "baseline"]
    assert read_ablation(folder, "sharder").bases.of_rows == (0, 1, 0, 1)
    assert read_ablation(folder, "model,sharder=dmt").bases.of_rows == (1, 1, 3, 3)
    assert "compared with the first row of each model with sharder=dmt" in read_ablation(folder, "model,sharder=dmt").notes
    refused = read_ablation(folder, "modle")
    assert not refused.compared and "ablation.baseline=modle: modle varies in no row: nothing is compared" in refused.notes


def test_under_six_seeds_no_interval_no_test_and_no_power(tmp_path: Path) -> None:
    few = write_ablation(sweep(tmp_path / "five", {key: aucs[:5] for key, aucs in GRID.items()}))
    assert comparison_tables(few) == [] and not [one for one in few.comparisons.values() if one.estimate.confidence or one.seeds_needed]
    assert column(few, tables=change_tables)[1] == "+0.0100"
    for file in ("md", "html", "tex"):
        text = (tmp_path / "five" / f"ablation.{file}").read_text()
        assert "5 paired seeds cannot show any difference" in text and "power" not in text and "interval" not in text, file
    enough = read_ablation(sweep(tmp_path / "six", GRID))
    assert comparison_tables(enough) and "better" in column(enough, tables=change_tables)[1]


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("a_b & 50% #1 $2 {x}", r"a\_b \& 50\% \#1 \$2 \{x\}"),
        ("[64,32]*2|~^<>", r"{[}64,32]{*}2\textbar{}\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}"),
        ("-0.5 to 3-4 --x", r"$-$0.5 to 3-4 -{}-x"),
        ("caf\u00e9 \u4e2d\t", r"caf\u00e9 {[}U+4E2D] ".replace(r"\u00e9", "\u00e9")),
    ],
)
def test_letters_of_latex(words: str, written: str) -> None:
    assert latex(words) == written


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep whose names are as bad for LaTeX as can be, with a failed row and tests."""
    folder = tmp_path_factory.mktemp("published")
    names = ["d_lrm", "[512,256]", "*a&b 50%", "caf\u00e9 \u4e2d\u6587 \\x{y}", "a|b<c>$1 \u2192 --"]
    aucs = {(name, "a#~^"): [auc + 0.01 * i for auc in SIX] for i, name in enumerate(names)}
    aucs[names[4], "a#~^"] = [0.7, *[None] * 5]
    write_ablation(sweep(folder, aucs), cell="mean_std")
    return folder


def test_each_caption_is_a_sentence(published: Path) -> None:
    captions = re.findall(r"\\caption\{(.*)\}$", (published / "ablation.tex").read_text(), re.MULTILINE)
    assert len(captions) > 5 and all(one.endswith(".") and ". " not in one and len(one) < 140 for one in captions)
    assert captions[0] == r"Quality, validation (measured): mean $\pm$ standard deviation over seeds, the best in bold."


def compiled(name: str, folder: Path) -> str:
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == 0 and (folder / f"{name}.pdf").stat().st_size > 10_000, done.stdout[-2000:]
    return (folder / f"{name}.log").read_text(errors="replace")


@needs_latex
def test_latex_compiles_by_itself_and_in_a_paper(published: Path, tmp_path: Path) -> None:
    paper = "\\documentclass{article}\\begin{document}Text.\n\\input{ablation}\n\\input{ablation}\nMore.\\end{document}\n"
    (tmp_path / "paper.tex").write_text(paper)
    shutil.copy(published / "ablation.tex", tmp_path)
    for name in ("ablation", "paper"):
        assert "Missing character" not in compiled(name, tmp_path), name


@needs_latex
@pytest.mark.parametrize("cell", ["median_range", "mean_std"])
def test_no_table_is_wider_than_a_page(tmp_path: Path, cell) -> None:
    write_ablation(sweep(tmp_path, GRID), cell=cell)
    assert "Overfull" not in compiled("ablation", tmp_path)
