"""report.html in a real browser: hover, zoom, legends and links, no error, no request, nothing clipped or pushed off the page."""

from __future__ import annotations

import json
import os
from pathlib import Path

from recsys_lab.report.page import CONTENTS, write_page
from tests.browser import Page, needs_browser, with_page
from tests.record.fake_run import write_run
from tests.report.test_timeline_chart import TRACE

#: Where pictures are kept to be looked at.
PICTURES = os.environ.get("RECSYS_LAB_PICTURES")
CHARTS = ["curve-0", "curve-1", "weights-named", "map-named", "weights-here", "map-here"]
CHARTS += ["phases-measured", "phases-simulated", "timeline", "bounds"]
#: Charts with a picture or a word beyond their box, or beyond the window.
CLIPPED = """[...document.querySelectorAll('.chart')].filter(chart => {
  const box = chart.getBoundingClientRect();
  const out = one => one.width && (one.left < box.left - 1 || one.right > box.right + 1 || one.bottom > box.bottom + 1);
  return box.right > innerWidth || [...chart.querySelectorAll('svg.main-svg, .main-svg text')].some(e => out(e.getBoundingClientRect()));
}).map(chart => chart.id)"""
#: Tables of facts that are wider than the page.
FACTS_CUT = """[...document.querySelectorAll('.scroll:has(tr > :nth-child(2):last-child)')]
    .filter(table => table.scrollWidth > table.clientWidth).map(table => table.textContent)"""


async def hover(page: Page, chart: str, point: str, across: float = 0.5) -> str:
    """What a chart says with the pointer in the middle of an element of it, or `across` its width; waits until it says something."""
    await page.value(f"document.getElementById('{chart}').scrollIntoView({{block: 'center'}})")
    box = await page.value(f"document.querySelector('#{chart} {point}').getBoundingClientRect().toJSON()")
    said = ""
    for _ in range(10):
        await page.move(box["x"] + box["width"] * across, box["y"] + box["height"] / 2)
        if said := await page.value(f"document.querySelector('#{chart} .hoverlayer').textContent"):
            break
    return said


@needs_browser
def test_a_report_in_a_browser(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "trace.json").write_text(json.dumps(TRACE))
    file = write_page(folder)

    async def look(page: Page) -> None:
        for width in (1280, 400):
            await page.open(file, width)
            assert await page.value("[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.id)") == CHARTS
            assert await page.value("document.documentElement.scrollWidth") <= width
            assert await page.value(CLIPPED) == [] and await page.value(FACTS_CUT) == []
            if PICTURES:
                await page.screenshot(Path(PICTURES) / f"report_{width}.png")
            tops = await page.value("['curve-0', 'curve-1'].map(id => document.getElementById(id).getBoundingClientRect().top)")
            assert (tops[0] == tops[1]) == (width == 1280)  # beside each other, or stacked
            said = await hover(page, "timeline", ".point path")
            assert "row_wise.ids<b>" in said and "0.500 ms" in said and "links between hosts" in said, said
            assert "arithmetic" in await hover(page, "bounds", ".barlayer .trace:last-child .point path")
            said = await hover(page, "map-named", ".heatmaplayer image", across=0.06)  # a table that every rank has rows of
            assert "rank 3" in said and "rows" in said and "B" in said, said
            assert await hover(page, "weights-named", ".point path") != ""
        await page.open(file, 1280)
        span = "(() => { const [a, b] = document.getElementById('timeline').layout.xaxis.range; return b - a })()"
        before = await page.value(span)
        await page.value("document.getElementById('timeline').scrollIntoView({block: 'center'})")
        await page.value("document.querySelector('#timeline .modebar-btn[data-title=\"Zoom in\"]').click()")
        assert await page.value(span) < 0.6 * before
        bars = "document.querySelectorAll('#timeline .point').length"
        assert await page.value(bars) == 2
        await page.value("Plotly.restyle('timeline', {visible: 'legendonly'}, [0]).then(() => null)")
        assert await page.value(bars) == 1
        for anchor in CONTENTS:
            await page.value(f"document.querySelector('nav a[href=\"#{anchor}\"]').click()")
            assert await page.value("location.hash") == f"#{anchor}"
        assert page.complaints == []
        assert [address for address in page.requests if not address.startswith(("data:", file.as_uri()))] == []

    with_page(file, 1280, look)
