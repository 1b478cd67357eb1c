"""Pages copied into the site, with links that lead out of docs/ turned to where their target stands in the site.

A Markdown page of the repository that the site has becomes a link to that page; any other file is copied beside the pages as text.
"""

from __future__ import annotations

import os
import re
import shutil
from itertools import groupby
from pathlib import Path

#: Markdown outside docs/ that is part of the site, and where.
PAGES = {
    "README.md": "readme.md",
    "ROADMAP.md": "roadmap.md",
    "CHANGELOG.md": "changelog.md",
    "requirements/README.md": "requirements.md",
}
#: Pages that a search shows behind the others, and the head that says so.
BEHIND, LATER = ("decisions/", "changelog", "lessons", "studies/20"), "---\nsearch:\n  boost: 0.3\n---\n\n"
PICTURES = (".svg", ".png")
#: Pages that the generator makes itself. In the repository a link leads to what they are made of. That is conf/config.yaml, the folder of a
#: group, or a choice's file with its name as the anchor (conf/data/table.yaml#table). Without an anchor the site too has the file.
MADE = re.compile(r"docs/config/\w+\.md")
CONFIG = re.compile(r"conf/(?:config\.yaml|(\w+)(?:/\w+\.yaml#)?)")
_ITEM = re.compile(r"([-*]|\d+\.) ")
_OF_AN_ITEM = re.compile(r"^ {2,3}(?=\S)")
_LINK = re.compile(r"(?<!\\)(!?\[[^\]]*\])\(([^)\s]+)\)")
#: Code, or the space of a percentage: a line never begins with its sign.
_PERCENT = re.compile(r"(`[^`]*`)|(?<=\d) %")
#: In HTML, which Markdown needs for pictures that follow the reader's light or dark theme.
_PICTURE = re.compile(r'\b(src|srcset)="([^"]+)"')


class Site:
    """The folder that mkdocs reads, filled from the repository `root`."""

    def __init__(self, root: Path, folder: Path):
        self.root, self.folder = root, folder

    def add_page(self, page: Path) -> None:
        """Copy a Markdown page of the repository to its place, links turned."""
        place = self.place_of(page)
        self.add_text(place, (LATER if place.startswith(BEHIND) else "") + page.read_text(encoding="utf-8"), page)

    def add_text(self, place: str, text: str, page: Path | None = None) -> None:
        """Write `text` at `place`; its links are turned as those of the repository's file `page` are."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.turned(text, page) if page else text, encoding="utf-8")

    def place_of(self, path: Path) -> str:
        """Where a file of the repository stands in the site."""
        name = path.relative_to(self.root).as_posix()
        if name in PAGES:
            return PAGES[name]
        if name.startswith("docs/") and path.suffix in (".md", *PICTURES):
            return name.removeprefix("docs/")
        if name.startswith("experiments/") and path.name == "README.md":
            return f"studies/{path.parent.name}.md"
        if name.startswith("experiments/") and path.suffix == ".md":  # a dated log of measurements
            return f"studies/{path.name}"
        return f"source/{name}" if path.suffix in PICTURES else f"source/{name}.txt"

    def turned(self, text: str, page: Path) -> str:
        """`text` with its links as they are in the site. Raises ValueError for one to nothing."""
        here = Path(self.place_of(page)).parent

        def turn(match: re.Match[str]) -> str:
            words, target = match.groups()
            address, hash_mark, part = target.partition("#")
            if "://" in address or address.startswith("mailto:") or not address:
                return match[0]
            place = self._place(page, address, hash_mark)
            return f"{words}({os.path.relpath(place, here).replace(os.sep, '/')}{hash_mark}{part})"

        def turn_picture(match: re.Match[str]) -> str:
            place = self._place(page, match[2])
            return f'{match[1]}="{os.path.relpath(place, here).replace(os.sep, "/")}"'

        text = _outside_code(_PERCENT, lambda match: match[1] or "\u00a0%", text)
        return _lists_apart(_outside_code(_PICTURE, turn_picture, _outside_code(_LINK, turn, text)))

    def _place(self, page: Path, address: str, hash_mark: str = "") -> str:
        path = Path(os.path.normpath(page.parent / address))
        name = path.relative_to(self.root).as_posix()
        if MADE.fullmatch(name):
            return name.removeprefix("docs/")
        if path.exists() and (made := CONFIG.fullmatch(name + hash_mark)):
            return f"config/{made[1] or 'index'}.md"
        if path.is_dir():
            path = path / "README.md"
        if not path.is_file():
            raise ValueError(f"{page.relative_to(self.root)}: a link to {address}, which is not there")
        place = self.place_of(path)
        if place.startswith("studies/") and not (self.folder / place).exists():
            (self.folder / place).parent.mkdir(exist_ok=True)
            (self.folder / place).touch()  # links of studies to each other end here
            self.add_page(path)
        if place.startswith(("source/", "images/")):
            (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.folder / place)
        return place


def _lists_apart(text: str) -> str:
    """`text` with lists as Python-Markdown wants them: behind an empty line, and what belongs to an item four spaces in."""
    lines: list[str] = []
    listed = fenced = False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and _ITEM.match(line):
            if lines and lines[-1].strip() and not listed:
                lines.append("")
            listed = True
        elif not fenced and line.strip() and not line.startswith(" ") and not (lines and lines[-1].strip()):
            listed = False
        lines.append(_OF_AN_ITEM.sub("    ", line) if listed and not fenced and _apart(lines, line) else line)
    return "\n".join(lines)


def _apart(lines: list[str], line: str) -> bool:
    """Whether `line` begins something of its own in an item of a list: an inner item, or a paragraph behind an empty line."""
    return bool(_ITEM.match(line.lstrip())) or not (lines and lines[-1].strip())


def _outside_code(pattern: re.Pattern[str], replace, text: str) -> str:
    """`text` with `pattern` replaced in its paragraphs, also over the end of a line: not in indented or fenced blocks."""
    lines = text.split("\n")
    groups = groupby(zip(lines, _code(lines), strict=True), key=lambda pair: (pair[1], bool(pair[0].strip())))
    blocks = [(code, "\n".join(line for line, _ in group)) for (code, _), group in groups]
    return "\n".join(block if code else pattern.sub(replace, block) for code, block in blocks)


def _code(lines: list[str]) -> list[bool]:
    """Whether each line is code. Four spaces begin a block of it only behind an empty line: else a paragraph goes on."""
    marks: list[bool] = []
    fenced = False
    for at, line in enumerate(lines):
        fence = line.lstrip().startswith("```")
        behind = at == 0 or marks[-1] or not lines[at - 1].strip()
        marks.append(fenced or fence or (line.startswith("    ") and behind))
        fenced ^= fence
    return marks
