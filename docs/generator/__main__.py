"""`python -m docs.generator FOLDER`: everything that mkdocs needs: our pages with their pictures, and those of the config.

`make docs` calls it; mkdocs then makes the site of FOLDER. Nothing here is imported by recsys_lab.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from docs.generator.config_pages import config_pages
from docs.generator.links import PAGES, Site

ROOT = Path(__file__).resolve().parents[2]


def write_pages(folder: Path) -> None:
    """Fill `folder`, which is emptied first. Raises ValueError for a link to a file that is not there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    site = Site(ROOT, folder)
    for source in (*PAGES, *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))):
        site.add_page(ROOT / source)
    for place, text in config_pages(ROOT).items():
        site.add_text(place, text, ROOT / "docs" / place)
    for name in ("site.css", "site.js"):
        shutil.copyfile(ROOT / "docs" / name, folder / name)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
