"""Links lead somewhere in both places where pages are read: in the repository, as a code host shows it, and on the site."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from docs.generator.__main__ import write_pages
from docs.generator.links import Site
from tests.architecture.test_files import repository_files
from tests.docs.pages import ROOT

_LINK = re.compile(r"(?<![\\!])\[[^\]]*\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|\b(?:src|srcset)=\"([^\"]+)\"")
_CODE = re.compile(r"^```.*?^```$|^(?:(?<=\n\n)(?: {4}[^\n]*\n|\n)+)", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
MARKDOWN = [path for path in repository_files() if path.suffix == ".md"]


def links(text: str) -> list[str]:
    """Targets of `text`, those to other hosts left out."""
    prose = re.sub(r"`[^`\n]*`", "", _CODE.sub("\n", text))
    targets = _LINK.findall(prose) + [one or other for one, other in _PICTURE.findall(prose)]
    return [target for target in targets if not re.match(r"\w+://|mailto:", target)]


def anchors(text: str) -> set[str]:
    """Of each heading, as a code host names it."""
    names: list[str] = []
    for heading in _HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return set(names)


def dead(page: Path, root: Path) -> list[str]:
    """Links of `page` to no file or folder below `root`, or to no heading of one."""
    missing = []
    for target in links(page.read_text(encoding="utf-8")):
        address, _, part = target.partition("#")
        path = Path(os.path.normpath(page.parent / address)) if address else page
        inside = path.is_relative_to(root) and path.exists()
        if not inside or part and path.suffix == ".md" and part not in anchors(path.read_text(encoding="utf-8")):
            missing.append(f"{page.relative_to(root)}: {target}")
    return missing


def test_every_link_leads_somewhere_in_the_repository() -> None:
    assert len(MARKDOWN) > 80
    assert [line for page in MARKDOWN for line in dead(page, ROOT)] == []


def test_every_link_leads_somewhere_on_the_site(tmp_path: Path) -> None:
    write_pages(tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    assert len(pages) > 80
    assert [line for page in pages for line in dead(page, tmp_path)] == []


@pytest.mark.parametrize(
    ("link", "place"),
    [
        ("../conf/config.yaml", "config/index.md"),
        ("../conf/profile", "config/profile.md"),
        ("../conf/data/table.yaml#table", "config/data.md#table"),
        ("../conf/cluster/h100.yaml", "source/conf/cluster/h100.yaml.txt"),
    ],
)
def test_the_config_has_pages_on_the_site_and_files_in_the_repository(link: str, place: str, tmp_path: Path) -> None:
    assert Site(ROOT, tmp_path).turned(f"[a]({link})", ROOT / "docs" / "index.md") == f"[a]({place})"


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One: `two`\n\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](none.md) `[e](f)`\n\n    [g](h)\n\n"
        '```\n# [i](j)\n```\n\n[k\nl](none/) ![m](n.svg) <img src="o.svg"> [p](https://q/r)\n'
    )
    assert dead(page, tmp_path) == [f"page.md: {target}" for target in ("#three", "none.md", "none/", "n.svg", "o.svg")]
