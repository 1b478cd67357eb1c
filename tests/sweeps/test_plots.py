"""Pictures of a sweep and the timeline of a run: what is on the Pareto line, what is in the band, what stands on the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.report.charts import colour
from recsys_lab.report.page import write_page
from recsys_lab.sweeps.ablation import read_ablation, write_ablation
from recsys_lab.sweeps.plots import DASHES, MARKS, MOST_ROWS, frontier, learning_bands, pareto
from tests.browser import CLIPPED, Page, needs_browser, with_page
from tests.record.fake_run import make_result, write_run
from tests.report.drawn import tips, words
from tests.report.test_timeline_chart import TRACE
from tests.sweeps.test_ablation import sweep

POINTS = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1)


@given(POINTS, st.booleans(), st.booleans())
def test_the_line_has_those_that_nothing_beats(points: dict[int, tuple[int, int]], higher_x: bool, higher_y: bool) -> None:
    best = set(frontier(points, higher_x, higher_y))
    assert best
    sign = (1 if higher_x else -1, 1 if higher_y else -1)
    for i, (x, y) in points.items():
        better = [(a, b) for a, b in points.values() if sign[0] * (a - x) >= 0 and sign[1] * (b - y) >= 0 and (a, b) != (x, y)]
        assert (i in best) == (not better)


def test_twelve_rows_are_all_drawn_and_named(tmp_path: Path) -> None:
    sweep(tmp_path, {(f"m{i}", "torchrec"): [0.7 + i / 1000, 0.71] for i in range(12)})
    ablation = read_ablation(tmp_path)
    names = {f"m{i}" for i in range(12)}
    curves, trades = learning_bands(ablation), pareto(ablation)
    assert curves and trades
    for chart in (*curves, *trades):
        assert names <= set(words(chart)) and {said.split("\n")[0] for said in tips(chart)} == names


def test_rows_that_coincide_look_different() -> None:
    looks = {(colour(place), str(DASHES[place % len(DASHES)]), MARKS[place % len(MARKS)]) for place in range(MOST_ROWS)}
    assert len(looks) == MOST_ROWS


def test_bands_hold_the_least_and_the_most_of_the_seeds(tmp_path: Path) -> None:
    folder = sweep(tmp_path)
    for number, job in enumerate(sorted(p for p in folder.iterdir() if p.is_dir())):
        (job / "metrics.csv").unlink(missing_ok=True)
        log = MetricsCsv(job)
        for step in (10, 20, 30):
            log.append({"step": step, "epoch": 0, "train_loss": 1 / step + 0.01 * number, "validation_auc": 0.7 + step / 1000})
    loss, auc = learning_bands(read_ablation(folder))
    assert (loss.title, auc.title) == ("training loss", "validation AUC")
    assert tips(loss)[0] == "dlrm\nstep 30: 0.04333 (0.03333 to 0.05333)"
    assert len(tips(loss)) == len(read_ablation(folder).rows)


def test_quality_stands_against_throughput_and_bytes(tmp_path: Path) -> None:
    ablation = read_ablation(sweep(tmp_path))
    charts = pareto(ablation)
    assert charts and all(chart.title.startswith("validation AUC (measured) against") for chart in charts)
    assert all(len(tips(chart)) == len(ablation.rows) for chart in charts)
    write_ablation(tmp_path)
    page = (tmp_path / "ablation.html").read_text()
    assert "What trades against what" in page and "default-src 'none'" in page


def test_a_sweep_without_figures_has_no_pictures(tmp_path: Path) -> None:
    for number in range(2):
        write_run(tmp_path / str(number), make_result("plan"), [f"a={number}"])
    ablation = read_ablation(tmp_path)
    assert learning_bands(ablation) == [] and pareto(ablation) == []


def test_figures_that_do_not_vary_are_said_and_not_drawn(tmp_path: Path) -> None:
    write_ablation(sweep(tmp_path / "same", {("dlrm", "a"): [0.7, 0.7], ("dcn", "a"): [0.7, 0.7]}))
    write_ablation(sweep(tmp_path / "other", {("dlrm", "a"): [0.7, 0.7], ("dcn", "a"): [0.7, 0.71]}))
    same, other = ((tmp_path / name / "ablation.html").read_text() for name in ("same", "other"))
    drawn = 'figure id="seeds-validation_auc"'
    assert drawn not in same and "Not drawn, as every seed has the same: " in same and "Quality, validation (measured), AUC 0.7000" in same
    assert "Not drawn, as all configurations have the same: validation AUC (measured)" in same
    assert drawn in other and "(measured), AUC 0.7" not in other


@needs_browser
@pytest.mark.parametrize("rows", [3, 20])
def test_a_phone_shows_charts_whole(tmp_path: Path, rows: int) -> None:
    sweep(tmp_path, {(f"a_model_with_a_long_name_{i}", "torchrec"): [0.7 + i / 1000, 0.71] for i in range(rows)})
    write_ablation(tmp_path)

    async def look(page: Page) -> None:
        assert await page.value("document.documentElement.scrollWidth") <= 390
        assert await page.value("document.querySelectorAll('figure').length") > 5 and await page.value(CLIPPED) == []

    with_page(tmp_path / "ablation.html", 390, look)


#: Said by the page itself: how much wider than the window it is, and which words of a picture leave it.
LOOK = """<script>
document.body.dataset.wider = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const out = [];
for (const svg of document.querySelectorAll('svg')) { const v = svg.viewBox.baseVal;
  if (!v) continue; for (const t of svg.querySelectorAll('text')) { const b = t.getBBox();
    if (b.x < -1 || b.x + b.width > v.width + 1 || b.y + b.height > v.height + 1) out.push(t.textContent); } }
document.body.dataset.leaving = JSON.stringify(out);
</script>"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
@pytest.mark.parametrize("kind", ["run", "sweep"])
@pytest.mark.parametrize("width", [1366, 1024])
def test_a_browser_shows_all_of_a_page_without_the_network(tmp_path: Path, kind: str, width: int) -> None:
    if kind == "run":
        folder = write_run(tmp_path / "run")
        (folder / "trace.json").write_text(json.dumps(TRACE))
        page = write_page(folder)
    else:
        sweep(tmp_path)
        write_ablation(tmp_path)
        page = tmp_path / "ablation.html"
    look = tmp_path / "look.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    look.write_text(text.replace("</body>", LOOK + "</body>"))
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--proxy-server=127.0.0.1:9"]
    html = subprocess.run([*browser, "--dump-dom", look.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-wider="0"' in html
    assert 'data-leaving="[]"' in html, re.search(r'data-leaving="([^"]*)"', html)
    printed = tmp_path / "page.pdf"
    subprocess.run([*browser, f"--print-to-pdf={printed}", page.as_uri()], capture_output=True, timeout=120, check=True)
    assert printed.read_bytes().startswith(b"%PDF") and printed.stat().st_size > 10_000
