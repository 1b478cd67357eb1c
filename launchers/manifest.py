"""What runs a run elsewhere: a file beside it, for the tool that submits it. The templates lie beside this file."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
import yaml
from omegaconf import OmegaConf

from recsys_lab.base.paths import sweep_of

#: Pods are called after the run, with a suffix, and Kubernetes allows 63 characters.
LONGEST_NAME = 40
#: What a user says here and not to the ranks. It is where the run folder lies here, how jobs of a sweep are made, and whether to submit.
HERE = ("hydra.", "hydra/", "resume=", "overwrite=", "launcher.submit=", "launcher=")
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters["quoted"] = lambda text: yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True).rstrip("\n")


def write(folder: Path, file: str, /, **values: Any) -> Path:
    """Makes `file` in `folder` from the template of that name. Returns its path."""
    path = folder / file
    path.write_text(TEMPLATES.get_template(f"{file}.j2").render(sweep=sweep_of(folder), **values), encoding="utf-8")
    return path


def name_of(folder: Path) -> str:
    """A name that Kubernetes allows, from the run folder's; with the sweep's for one job of it."""
    folder = folder.resolve()
    text = f"{folder.parent.name}-{folder.name}" if folder.name.isdigit() else folder.name
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"run-{plain}"
    if len(plain) <= LONGEST_NAME:
        return plain
    mark = sha256(str(folder).encode()).hexdigest()[:6]
    return f"{plain[: LONGEST_NAME - len(mark) - 1].rstrip('-')}-{mark}"


def words_of(folder: Path, launcher: str, there: str) -> list[str]:
    """run.py's words for the ranks of the run in `folder`, less what concerns this machine alone. `there`: the run folder that they see."""
    overrides = map(str, OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
    return [f"launcher={launcher}", *(word for word in overrides if not word.startswith(HERE)), f"hydra.run.dir={there}"]
