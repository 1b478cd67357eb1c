"""decide.html in a real browser: hover, filters, sorting, no error, no request, nothing pushed off the page."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from recsys_lab.decide.decision import Decision, decide
from recsys_lab.decide.page import page, write_decision
from tests.browser import Page, needs_browser, with_page

#: Where pictures are kept to be looked at.
PICTURES = os.environ.get("RECSYS_LAB_PICTURES")


@pytest.fixture(scope="module")
def decision() -> Decision:
    words = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "profiles=torchrec,hugectr"]
    return decide(*words, clusters="h100x16:2.5,a100x32:1.5", batch=65536, sharders="dmt,torchrec_row_wise,neo_4d")


def test_the_page_asks_for_nothing_and_runs_only_what_is_embedded(decision: Decision) -> None:
    text = page(decision)
    head = text[: text.index("</head>")]
    assert "default-src 'none'" in head and head.count("sha256-") == 3 and "unsafe-eval" not in head
    assert "<script src" not in text and "<link" not in text


def test_words_of_a_user_are_no_markup(decision: Decision) -> None:
    named = replace(decision, rows=[replace(row, cluster="</script><b>") for row in decision.rows])
    assert "</script><b>" not in page(named)


@needs_browser
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_in_a_browser(decision: Decision, tmp_path: Path, width: int) -> None:
    file = write_decision(decision, tmp_path / "decide.html")

    async def look(page: Page) -> None:
        assert await page.value("document.documentElement.scrollWidth") <= width
        assert await page.value("document.querySelectorAll('#scatter .point').length") == 36
        clipped = """[...document.querySelectorAll('.chart')].filter(chart => {
          const box = chart.getBoundingClientRect();
          return [...chart.querySelectorAll('svg.main-svg')].some(svg => svg.getBoundingClientRect().right > box.right + 1
            || svg.getBoundingClientRect().bottom > box.bottom + 1);
        }).map(chart => chart.id)"""
        assert await page.value(clipped) == []
        if PICTURES:
            await page.screenshot(Path(PICTURES) / f"decide_{width}.png")
        await page.value("document.getElementById('scatter').scrollIntoView()")
        box = await page.value("document.querySelector('#scatter .point').getBoundingClientRect().toJSON()")
        await page.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        hover = await page.value("document.querySelector('#scatter .hoverlayer').textContent")
        assert "ms (" in hover and "dollars per 1e9" in hover and "GB" in hover, hover
        rows = "document.querySelectorAll('#rows tbody tr').length"
        assert await page.value(rows) == 36
        heads = "[...document.querySelectorAll('#rows th')].map(head => head.textContent)"
        empty = """[...document.querySelectorAll('#rows th')].map((head, i) => [head.textContent, i]).filter(([, i]) =>
          ![...document.querySelectorAll('#rows tbody tr')].some(row => row.cells[i].textContent)).map(([words]) => words)"""
        assert await page.value(empty) == [] and "what fits" not in await page.value(heads)
        assert "no row has a value: " in await page.value("document.getElementById('count').textContent")
        front = "document.querySelectorAll('#rows tr.pareto').length"
        assert await page.value("document.querySelectorAll('#front li').length") == await page.value(front) > 0
        labels = "[...document.querySelectorAll('#scatter .textpoint')].map(text => text.textContent).join().match(/[0-9]+/g).length"
        assert await page.value(labels) == await page.value(front)
        await page.value("document.querySelector('input[value=neo_4d]').click()")
        assert await page.value(rows) == 24
        assert await page.value("document.querySelectorAll('#scatter .point').length") == 24
        await page.value("document.querySelector('input[value=h100x16]').click()")
        await page.value("document.querySelector('input[value=bf16]').click()")
        assert await page.value(rows) == 8
        await page.value("document.querySelector('th[data-key=ms]').click()")
        times = await page.value("[...document.querySelectorAll('#rows tbody tr')].map(row => Number(row.cells[4].textContent))")
        assert times == sorted(times) and len(times) == 8
        before = await page.value("document.getElementById('rows').textContent")
        await page.value("(() => { const s = document.getElementById('profile'); s.value = 'hugectr'; s.onchange() })()")
        assert await page.value("document.getElementById('rows').textContent") != before
        assert await page.value("document.querySelectorAll('#phases .point').length") >= 4
        assert await page.value("document.querySelectorAll('#tornado .point').length") >= 6
        assert page.complaints == []
        assert [address for address in page.requests if not address.startswith(("data:", file.as_uri()))] == []

    with_page(file, width, look)
