"""A headless Chromium that opens a page of ours, driven over its DevTools protocol. Tests that need one skip where there is none."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install Debian's package chromium")


#: Of the charts that are shown, those with words beyond their picture or the window, or wider than the window and not to be scrolled.
CLIPPED = """[...document.querySelectorAll('figure')].filter(figure => figure.getBoundingClientRect().width).filter(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const beside = one => one.left < box.left - 1 || one.right > box.right + 1;
  const out = one => one.width && (beside(one) || one.top < box.top - 1 || one.bottom > box.bottom + 1);
  return (box.right > innerWidth + 1 && !figure.classList.contains('wide'))
    || [...svg.querySelectorAll('text')].some(text => out(text.getBoundingClientRect()));
}).map(figure => figure.id)"""


@dataclass
class Page:
    """An open page. `complaints`: console errors and exceptions; `requests`: addresses that it asked for, itself among them."""

    socket: aiohttp.ClientWebSocketResponse
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    number: int = 0

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        """The answer of a DevTools command; events that come before it are kept."""
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": given})
        while True:
            said = json.loads((await self.socket.receive(timeout=60)).data)
            if said.get("id") == self.number:
                assert "error" not in said, said
                return said["result"]
            self._keep(said)

    def _keep(self, said: dict[str, Any]) -> None:
        method, facts = said.get("method"), said.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(facts["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "assert"):
            self.complaints.append(str(facts["args"]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] == "error":
            self.complaints.append(facts["entry"]["text"])

    async def value(self, script: str) -> Any:
        """Of an expression, awaited if it is a promise."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def open(self, file: Path, width: int, height: int = 900) -> None:
        """Shows `file` in a window of so many pixels; below 600 that of a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=file.as_uri())
        for _ in range(300):
            if await self.value("document.readyState") == "complete":
                break
            await asyncio.sleep(0.1)

    async def scheme(self, dark: bool) -> None:
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    async def screenshot(self, path: Path) -> None:
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))


def with_page(file: Path, width: int, work: Callable[[Page], Awaitable[None]], height: int = 900) -> None:
    """Calls `work` with `file` open in a window of so many pixels."""
    asyncio.run(_with_page(file, width, height, work))


async def _with_page(file: Path, width: int, height: int, work: Callable[[Page], Awaitable[None]]) -> None:
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        port_file = Path(profile) / "DevToolsActivePort"
        line = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *QUIET, f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        browser = subprocess.Popen([*line, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                if port_file.exists() and len(port_file.read_text().split()) == 2:
                    break
                await asyncio.sleep(0.1)
            port = port_file.read_text().split()[0]
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    target = next(one for one in await answer.json(content_type=None) if one["type"] == "page")
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=2**28) as socket:
                    page = Page(socket)
                    for domain in ("Page", "Runtime", "Network", "Log"):
                        await page.call(f"{domain}.enable")
                    await page.open(file, width, height)
                    await work(page)
        finally:
            browser.terminate()
            browser.wait(30)
