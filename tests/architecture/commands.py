"""Finds the commands that documents and configs show, so that a test can hold them to the command line as it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:python|torchrun\b.*?) run\.py\b(.*)$")
ANYWHERE = re.compile(r"python run\.py\b(.*)$")
OVERRIDE = re.compile(r"^(?:-m|--multirun|--help|--cfg|job|[+~]{0,2}[A-Za-z_][\w./@]*=.*)$")


@dataclass(frozen=True)
class Command:
    file: str
    line: int
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {' '.join(self.arguments)}"


def shown_commands(file: Path, root: Path) -> Iterator[Command]:
    """Every line of a document that starts with `python run.py` (or torchrun ... run.py), a following `\\` continued."""
    lines = file.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        first, text = number + 1, lines[number].strip()
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text = text[:-1] + " " + lines[number].strip()
        number += 1
        if match := START.match(text):
            arguments = shlex.split(match[1], comments=True)
            for stop in ("&&", "|", ">", ";"):
                arguments = arguments[: arguments.index(stop)] if stop in arguments else arguments
            yield Command(str(file.relative_to(root)), first, tuple(arguments))


def mentioned_commands(file: Path, root: Path) -> Iterator[Command]:
    """Every command mentioned in a comment or text, as far as its words are overrides."""
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if match := ANYWHERE.search(text):
            try:
                words = shlex.split(match[1], comments=True)
            except ValueError:  # a quote that belongs to the sentence around it
                words = match[1].split()
            arguments: list[str] = []
            for word in words:
                if not OVERRIDE.match(word):
                    break
                arguments.append(word.rstrip(",.;)`"))
                if word[-1] in ",.;)`":
                    break
            yield Command(str(file.relative_to(root)), number, tuple(arguments))
