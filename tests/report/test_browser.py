"""report.html in a real browser: schemes and links, no error, no request, nothing clipped or pushed off the page."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from recsys_lab.report.page import CONTENTS, write_page
from tests.browser import CLIPPED, Page, needs_browser, with_page
from tests.record.fake_run import make_breakdown, make_result, write_run
from tests.report.test_timeline_chart import TRACE

#: Where pictures are kept to be looked at.
PICTURES = os.environ.get("RECSYS_LAB_PICTURES")
CHARTS = ["curve-0", "curve-1", "reliability-validation", "by-auc-device-type", "by-calibration-device-type"]
CHARTS += ["weights-named", "map-named", "weights-here", "map-here"]
CHARTS += ["phases-measured", "phases-simulated", "timeline", "bounds"]
#: Tables of facts that are wider than the page.
FACTS_CUT = """[...document.querySelectorAll('.scroll:has(tr > :nth-child(2):last-child)')]
    .filter(table => table.scrollWidth > table.clientWidth).map(table => table.textContent)"""


@needs_browser
def test_a_report_in_a_browser(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", replace(make_result(), breakdown={"validation": make_breakdown()}))
    (folder / "trace.json").write_text(json.dumps(TRACE))
    file = write_page(folder)

    async def look(page: Page) -> None:
        for width in (1280, 400):
            await page.open(file, width)
            assert await page.value("[...document.querySelectorAll('figure')].map(figure => figure.id)") == CHARTS
            assert await page.value("document.documentElement.scrollWidth") <= width
            assert await page.value(CLIPPED) == [] and await page.value(FACTS_CUT) == []
            if PICTURES:
                await page.screenshot(Path(PICTURES) / f"report_{width}.png")
            tops = await page.value("['curve-0', 'curve-1'].map(id => document.getElementById(id).getBoundingClientRect().top)")
            assert (tops[0] == tops[1]) == (width == 1280)  # beside each other, or stacked
            for dark in (False, True):
                await page.scheme(dark)
                inks = await page.value(
                    "[getComputedStyle(document.querySelector('svg text')).fill, getComputedStyle(document.body).color]"
                )
                assert inks[0] == inks[1]
        for anchor in CONTENTS:
            await page.value(f"document.querySelector('nav a[href=\"#{anchor}\"]').click()")
            assert await page.value("location.hash") == f"#{anchor}"
        assert page.complaints == []
        assert [address for address in page.requests if not address.startswith(("data:", file.as_uri()))] == []

    with_page(file, 1280, look)
