"""site.js in a browser: blocks of code keep their text for who copies it, and no block is wider than a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import Page, needs_browser, with_page
from tests.docs.pages import ROOT

COMMAND = "python run.py model=tables model.file=docs/tables.csv data.rows_per_table=[200000,3000000,50000,1000,8000000] \\\n    --all"
OUTPUT = "A verdict of many words, which is as long as a line of a terminal with 80 columns\ncan be."
COLUMNS = "sharder            ms   samples/s\nneo_4d          17.15  15,281,386"
BLOCKS = {
    "coloured": '<span class="k">import</span> torch\n\n<span class="k">print</span>(torch)',
    "command": f"{COMMAND}\n\n{COLUMNS}",
    "output": OUTPUT,
}
TEXTS = {**BLOCKS, "coloured": "import torch\n\nprint(torch)"}


@needs_browser
@pytest.mark.parametrize("width", [400, 1280])
def test_a_block_keeps_its_text_and_fits_the_page(tmp_path: Path, width: int) -> None:
    blocks = "".join(f'<div class="highlight"><pre><code id="{name}">{text}\n</code></pre></div>' for name, text in BLOCKS.items())
    page = tmp_path / "page.html"
    styles = "<style>pre { margin: 0; overflow: auto } code { display: block; font-family: monospace; overflow: auto }</style>"
    page.write_text(
        f'<!doctype html><html><head><meta name="viewport" content="width=device-width">{styles}'
        f"<style>{(ROOT / 'docs' / 'site.css').read_text()}</style></head><body><article class='md-typeset'>{blocks}"
        "<p>with <code>show RUN --plan</code> <code>fbgemm-gpu-cpu</code> <code>docs/decisions/of_the_year.py</code></p>"
        "<table><thead><tr><th>GPUs</th><th>ms</th><th>of</th></tr></thead><tbody><tr><td>8</td><td>3</td><td>5</td></tr></tbody></table></article>"
        f"<script>{(ROOT / 'docs' / 'site.js').read_text()}</script></body></html>"
    )

    async def look(page: Page) -> None:
        for name, text in TEXTS.items():
            block = f"document.getElementById('{name}')"
            assert await page.value(f"{block}.dataset.copy") == text
            lines = [line for line in (await page.value(f"{block}.innerText")).split("\n") if line.strip()]
            shown = text.replace(" \\\n    ", " ") if width == 400 else text  # a phone needs no mark where a command goes on
            assert lines == [line for line in shown.split("\n") if line], "a line that is selected by hand stands once"
            assert await page.value(f"{block}.scrollWidth <= {block}.clientWidth + 1")
        assert await page.value("[...coloured.children].map(line => line.className).join()") == "line wraps,line wraps,line wraps"
        assert (
            await page.value("[...document.querySelectorAll('p .option')].map(word => word.textContent).join()") == "--plan,fbgemm-gpu-cpu"
        )
        assert await page.value("document.querySelector('p .long').lastChild.textContent") == "year.py"
        heads = await page.value(
            "[...document.querySelectorAll('td:first-child')].map(cell => getComputedStyle(cell, '::before').content).join()"
        )
        assert heads == ('"GPUs: "' if width == 400 else "none")
        assert not page.complaints

    with_page(page, width, look)
