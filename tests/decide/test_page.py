"""decide.html in a real browser: filters, sorting, no error, no request, nothing pushed off the page."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from recsys_lab.decide.decision import Decision, decide
from recsys_lab.decide.page import page, write_decision
from tests.browser import CLIPPED, Page, needs_browser, with_page

#: Where pictures are kept to be looked at.
PICTURES = os.environ.get("RECSYS_LAB_PICTURES")


@pytest.fixture(scope="module")
def decision() -> Decision:
    words = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "profiles=torchrec,hugectr"]
    run = {"samples": 1e12, "spot": "h100x16:1.1@0.05", "target_hours": 24}
    return decide(*words, clusters="h100x16:2.5,a100x32:1.5", batch=65536, sharders="dmt,torchrec_row_wise,neo_4d", **run)


def test_the_page_asks_for_nothing_and_runs_only_what_is_embedded(decision: Decision) -> None:
    text = page(decision)
    head = text[: text.index("</head>")]
    assert "default-src 'none'" in head and head.count("sha256-") == 1 and "unsafe-eval" not in head
    assert "The whole run, 1.0 T samples" in text and decision.target is not None and decision.target.words in text
    assert text.count("<script") == 1 and "<script src" not in text and "<link" not in text


def test_words_of_a_user_are_no_markup(decision: Decision) -> None:
    named = replace(decision, rows=[replace(row, cluster="</script><b>") for row in decision.rows])
    assert "</script><b>" not in page(named)


def shown(selector: str) -> str:
    """A script: how many of such elements are not hidden by a filter."""
    style = "getComputedStyle(one).display === 'none' && one.tagName !== 'title'"
    hidden = f"one => {{ for (; one; one = one.parentElement) if ({style}) return true }}"
    return f"(hidden => [...document.querySelectorAll('{selector}')].filter(one => !hidden(one)).length)({hidden})"


@needs_browser
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_in_a_browser(decision: Decision, tmp_path: Path, width: int) -> None:
    file = write_decision(decision, tmp_path / "decide.html")

    async def look(page: Page) -> None:
        assert await page.value("document.documentElement.scrollWidth") <= width
        assert await page.value(CLIPPED) == []
        if PICTURES:
            await page.screenshot(Path(PICTURES) / f"decide_{width}.png")
        points, rows = shown("#cost-profile-0 title"), shown("#rows tbody tr")
        assert await page.value(points) == await page.value(rows) == 36
        said = await page.value("document.querySelector('#cost-profile-0 title').textContent")
        assert "ms (" in said and "dollars per 1e9" in said and "GB" in said, said
        heads = await page.value("[...document.querySelectorAll('#rows th')].map(head => head.textContent)")
        assert "what fits" not in heads and await page.value("document.body.textContent.includes('no row has a value: ')")
        stars = await page.value(shown("#rows tbody tr.pareto"))
        assert await page.value(shown("ol li")) == stars > 0
        await page.value("document.getElementById('sharder-2').click()")
        assert await page.value(points) == await page.value(rows) == 24
        await page.value("document.getElementById('cluster-0').click()")
        await page.value("document.getElementById('precision-1').click()")
        assert await page.value(points) == await page.value(rows) == 8
        await page.value("document.getElementById('profile-1').click()")
        assert await page.value(points) == 0 and await page.value(shown("#cost-profile-1 title")) == await page.value(rows) == 8
        for _ in range(2):
            await page.value(f"document.querySelectorAll('#rows th')[{heads.index('ms')}].click()")
            cells = f"[...document.querySelectorAll('#rows tbody tr')].map(row => row.cells[{heads.index('ms')}].textContent)"
            times = [float(text) for text in await page.value(cells)]
            assert times == sorted(times, reverse=times[0] > times[-1]) and times[0] != times[-1]
        assert await page.value(shown("#phases-profile-1 title")) > 4 and await page.value(shown("#changes title")) >= 6
        assert page.complaints == []
        assert [address for address in page.requests if not address.startswith(("data:", file.as_uri()))] == []

    with_page(file, width, look)
