"""Pictures of a sweep and the timeline of a run: what is on the Pareto line, what is in the band, what stands on the page."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.report.page import write_page
from recsys_lab.report.svg import nice_ticks, tick_text
from recsys_lab.sweeps.ablation import read_ablation, write_ablation
from recsys_lab.sweeps.plots import DIGIT, HIGH, frontier, label_places, learning_bands, pareto
from recsys_lab.sweeps.seeds_plot import _ratio_ticks
from tests.browser import Page, needs_browser, with_page
from tests.record.fake_run import make_result, write_run
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


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@given(st.lists(st.tuples(st.floats(0, 40), st.floats(0, 20)), min_size=1, max_size=16))
def test_labels_of_near_points_do_not_cover_each_other(points: list[tuple[float, float]]) -> None:
    words = [str(i + 1) for i in range(len(points))]
    places = label_places(points, words)
    boxes = [(x, y - HIGH, x + DIGIT * len(word), y) for (x, y), word in zip(places, words)]
    assert not [(i, j) for i, one in enumerate(boxes) for j, other in enumerate(boxes[:i]) if overlap(one, other)]


def test_twelve_rows_are_all_drawn_and_named(tmp_path: Path) -> None:
    sweep(tmp_path, {(f"m{i}", "torchrec"): [0.7 + i / 1000, 0.71] for i in range(12)})
    ablation = read_ablation(tmp_path)
    picture = pareto(ablation)
    assert picture is not None and all(f"model=m{i}<" in picture for i in range(12))
    for chart in learning_bands(ablation):
        lines = [trace for trace in chart.data if "line" in trace]
        assert [trace["name"] for trace in lines] == [f"model=m{i}" for i in range(12)]
        looks = [(trace["line"]["color"], trace["line"]["dash"], trace["marker"]["symbol"]) for trace in lines]
        assert len(set(looks)) == 12
        for one, next_one in itertools.pairwise(lines):  # what is drawn later does not cover what lies below it
            assert one["line"]["width"] > next_one["line"]["width"] and one["line"]["dash"] != next_one["line"]["dash"]


def test_ratios_near_each_other_have_ticks() -> None:
    assert len(_ratio_ticks(0.656, 1.378, 4)) >= 3 and 1.0 in _ratio_ticks(0.656, 1.378, 4)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.5, 0.5 + 1e-15), (-0.5 - 1e-15, -0.5), (3e-14, 5e-14), (1e-15, 1e-15), (0.0, 5e-324), (1e9, 1e9 + 1e-6), (-1e-14, 1e-14)],
)
def test_ticks_of_a_small_range_are_apart_and_span_it(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks == sorted(set(ticks)) and len(ticks) > 1 and ticks[0] <= low <= high <= ticks[-1]
    assert len({tick_text(tick, ticks) for tick in ticks}) == len(ticks)


def test_bands_hold_the_least_and_the_most_of_the_seeds(tmp_path: Path) -> None:
    folder = sweep(tmp_path)
    for number, job in enumerate(sorted(p for p in folder.iterdir() if p.is_dir())):
        (job / "metrics.csv").unlink(missing_ok=True)
        log = MetricsCsv(job)
        for step in (10, 20, 30):
            log.append({"step": step, "epoch": 0, "train_loss": 1 / step + 0.01 * number, "validation_auc": 0.7 + step / 1000})
    loss, auc = learning_bands(read_ablation(folder))
    assert (loss.title, auc.title) == ("training loss", "validation AUC")
    band, median = loss.data[:2]
    assert band["x"] == [10, 20, 30, 30, 20, 10] and median["x"] == [10, 20, 30]
    low, high = band["y"][:3], band["y"][:2:-1]
    assert all(a < b < c for a, b, c in zip(low, median["y"], high))
    assert band["legendgroup"] == median["legendgroup"] and len(loss.data) == 2 * len(read_ablation(folder).rows)


def test_quality_stands_against_throughput_and_bytes(tmp_path: Path) -> None:
    ablation = read_ablation(sweep(tmp_path))
    picture = pareto(ablation)
    assert picture is not None
    assert "validation AUC (measured)" in picture and all(f">{i + 1}<" in picture for i in range(len(ablation.rows)))
    write_ablation(tmp_path)
    page = (tmp_path / "ablation.html").read_text()
    assert "What trades against what" in page and "default-src 'none'" in page


def test_a_sweep_without_figures_has_no_pictures(tmp_path: Path) -> None:
    for number in range(2):
        write_run(tmp_path / str(number), make_result("plan"), [f"a={number}"])
    ablation = read_ablation(tmp_path)
    assert learning_bands(ablation) == [] and pareto(ablation) is None


def test_figures_that_do_not_vary_are_said_and_not_drawn(tmp_path: Path) -> None:
    write_ablation(sweep(tmp_path / "same", {("dlrm", "a"): [0.7, 0.7], ("dcn", "a"): [0.7, 0.7]}))
    write_ablation(sweep(tmp_path / "other", {("dlrm", "a"): [0.7, 0.7], ("dcn", "a"): [0.7, 0.71]}))
    same, other = ((tmp_path / name / "ablation.html").read_text() for name in ("same", "other"))
    drawn = 'aria-label="AUC of every seed'
    assert drawn not in same and "Not drawn, as every seed has the same: " in same and "Quality, validation (measured), AUC 0.7000" in same
    assert "Not drawn, as all configurations have the same: validation AUC (measured)" in same
    assert drawn in other and "(measured), AUC 0.7" not in other


@needs_browser
@pytest.mark.parametrize("rows", [3, 20])
def test_a_phone_shows_pictures_of_its_own_whole(tmp_path: Path, rows: int) -> None:
    """Wide ones would be cut, and their right halves hidden behind a scroll bar."""
    sweep(tmp_path, {(f"a_model_with_a_long_name_{i}", "torchrec"): [0.7 + i / 1000, 0.71] for i in range(rows)})
    write_ablation(tmp_path)
    leaving = """[...document.querySelectorAll('svg[role=img]')].filter(svg => svg.getBoundingClientRect().width).flatMap(svg =>
      [svg, ...svg.querySelectorAll('text')].filter(one => { const box = one.getBoundingClientRect();
        return box.left < -1 || box.right > document.documentElement.clientWidth + 1; }).map(one => one.textContent.slice(0, 80)))"""

    async def look(page: Page) -> None:
        assert await page.value("document.documentElement.scrollWidth") <= 390
        assert await page.value("document.querySelectorAll('.phone svg').length") == 2
        assert await page.value(leaving) == []
        assert await page.value("[...document.querySelectorAll('.scroll.wide')].every(one => !one.getBoundingClientRect().width)")

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
