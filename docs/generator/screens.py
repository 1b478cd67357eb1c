"""`python -m docs.generator.screens [NAME ...]`: screenshots of the pages that runs, sweeps and `decide` write, for the docs. Two minutes.

Needs Chromium. The commands are those of the docs; files lie in docs/images, each for light and for dark pages, and for phones
(NAME_phone_SCHEME). `--if-changed` does nothing while the code that writes those pages is that of the pictures on file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from PIL import Image

from recsys_lab.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking")
WIDTH = 960
#: Of a phone, in CSS pixels; its pictures have twice as many.
PHONE = 400
NARROWEST = 500  # window of Chromium
#: A scheme, and what makes Chromium ask for it.
SCHEMES = {"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"}
COLOURS = 256  # of a picture
#: The fingerprint of the code whose pages the pictures show.
CODE, ROOMS = IMAGES / "screens.sha256", ("report", "decide", "sweeps")


@dataclass(frozen=True)
class Screen:
    """`command`: arguments of Python, with FOLDER for an empty folder. `page`: what it writes there.

    `height`, `phone_height`: CSS pixels that are shown, to the end of a table, a chart or a row of cards.
    """

    name: str
    command: tuple[str, ...]
    page: str
    height: int
    phone_height: int


SCREENS = (
    Screen(
        "report",
        ("run.py", "model=dlrm", "sharder=neo_4d", "cluster=h100x64", "logger=none", "hydra.run.dir=FOLDER/run"),
        "run/report.html",
        1034,
        729,
    ),
    Screen(
        "decide",
        ("-m", "recsys_lab", "decide", "model=tables", "model.file=docs/tables.csv", "clusters=h100x64:2.50,a100x128:1.50", "batch=65536")
        + ("--page", "FOLDER/decide.html"),
        "decide.html",
        1270,
        840,
    ),
    Screen(
        "ablation",
        ("run.py", "-m", "model=dcn", "sharder=torchrec,dmt", "cluster=h100x64", "seed=1,2,3", "data=synthetic_brief", "logger=none")
        + ("hydra.sweep.dir=FOLDER/sweep",),
        "sweep/ablation.html",
        850,
        640,
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
            for scheme in SCHEMES:
                page = Path(folder) / screen.page
                photograph(browser, page, IMAGES / f"{screen.name}_{scheme}.png", (WIDTH, screen.height), scheme)
                photograph(browser, page, IMAGES / f"{screen.name}_phone_{scheme}.png", (PHONE, screen.phone_height), scheme)
        print(IMAGES / f"{screen.name}_*.png")
    if not names:
        CODE.write_text(code_of_pages() + "\n", encoding="utf-8")


def photograph(browser: str, page: Path, picture: Path, size: tuple[int, int], scheme: str) -> None:
    """The top of a page, width and height in CSS pixels, as a PNG file of at most COLOURS colours."""
    width, height = size
    sharpness = 1 if width >= NARROWEST else 2
    with tempfile.TemporaryDirectory() as folder:
        shown = page if width >= NARROWEST else _in_a_frame(page, size, Path(folder) / "frame.html")
        window = (f"--window-size={max(width, NARROWEST)},{height}", f"--force-device-scale-factor={sharpness}")
        words = [*window, f"--screenshot={picture}", f"--user-data-dir={folder}/profile", "--virtual-time-budget=5000", shown.as_uri()]
        subprocess.run([browser, *BROWSER_OPTIONS, SCHEMES[scheme], *words], check=True, capture_output=True, timeout=120)
    with Image.open(picture) as image:
        whole = image.convert("RGB").crop((0, 0, sharpness * width, sharpness * height))
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(picture, optimize=True)


def _in_a_frame(page: Path, size: tuple[int, int], frame: Path) -> Path:
    """A page that shows another one in a width that windows cannot have."""
    style = "color-scheme: light dark; border: 0; position: absolute; inset: 0"
    html = f'<!doctype html><meta name="color-scheme" content="light dark"><iframe src="{page.as_uri()}" style="{style}" '
    frame.write_text(f'{html}width="{size[0]}" height="{size[1]}"></iframe>', encoding="utf-8")
    return frame


def code_of_pages() -> str:
    """A fingerprint of the code that writes the pages."""
    files = sorted(path for room in ROOMS for path in (ROOT / "recsys_lab" / room).rglob("*.*") if path.suffix == ".py")
    return sha256(b"".join(path.read_bytes() for path in (*files, Path(__file__)))).hexdigest()


def refresh() -> None:
    """What `make docs` calls: nothing where the pictures are of today's code, a line where there is no browser."""
    if CODE.is_file() and CODE.read_text(encoding="utf-8").strip() == code_of_pages():
        return
    if not any(map(shutil.which, BROWSERS)):
        print("the screenshots are of earlier code; `make screens` takes them again, where Chromium is")
        return
    write_screens([])


if __name__ == "__main__":
    refresh() if sys.argv[1:] == ["--if-changed"] else write_screens(sys.argv[1:])
