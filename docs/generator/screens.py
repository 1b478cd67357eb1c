"""`python -m docs.generator.screens`: screenshots of the pages that runs, sweeps and `decide` write, for the docs. Two minutes.

Needs Chromium. The commands are those of the docs; files lie in docs/images, 1,280 pixels wide.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recsys_lab.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking")
WIDTH = 1280


@dataclass(frozen=True)
class Screen:
    """`command`: arguments of Python, with FOLDER for an empty folder. `page`: what it writes there. `height`: pixels that are shown."""

    name: str
    command: tuple[str, ...]
    page: str
    height: int


SCREENS = (
    Screen(
        "report",
        ("run.py", "model=dlrm", "sharder=neo_4d", "cluster=h100x64", "logger=none", "hydra.run.dir=FOLDER/run"),
        "run/report.html",
        1100,
    ),
    Screen(
        "decide",
        ("-m", "recsys_lab", "decide", "model=tables", "model.file=docs/tables.csv", "clusters=h100x64:2.50,a100x128:1.50", "batch=65536")
        + ("--page", "FOLDER/decide.html"),
        "decide.html",
        1000,
    ),
    Screen(
        "ablation",
        ("run.py", "-m", "model=dcn", "sharder=torchrec,dmt", "cluster=h100x64", "seed=1,2,3", "data=synthetic_brief", "logger=none")
        + ("hydra.sweep.dir=FOLDER/sweep",),
        "sweep/ablation.html",
        900,
    ),
)


def write_screens(names: list[str]) -> None:
    """Raises UserError without a browser, and where a command ends with an error."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise UserError("no browser to take pictures with", allowed=", ".join(BROWSERS), remedy="install Chromium")
    for screen in SCREENS:
        if names and screen.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            words = [word.replace("FOLDER", folder) for word in screen.command]
            done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UserError("a command of a picture failed", where=screen.name, given=done.stderr.strip().splitlines()[-1])
            photograph(browser, Path(folder) / screen.page, IMAGES / f"{screen.name}.png", screen.height)
        print(IMAGES / f"{screen.name}.png")


def photograph(browser: str, page: Path, picture: Path, height: int) -> None:
    """The top of a page, as a PNG file."""
    with tempfile.TemporaryDirectory() as profile:
        shape = (f"--window-size={WIDTH},{height}", f"--screenshot={picture}", f"--user-data-dir={profile}", "--virtual-time-budget=5000")
        subprocess.run([browser, *BROWSER_OPTIONS, *shape, page.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    write_screens(sys.argv[1:])
