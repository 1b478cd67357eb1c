"""Every table and figure of the papers.

Its study is in conf/experiment/PAPER; where it has none, experiments/PAPER/paper.yaml gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.config.options import StudyCommon
from recsys_lab.errors import UserError, as_called, did_you_mean
from recsys_lab.studies.code import ROOT

EXPERIMENTS = ROOT / "experiments"
CONFIGS = ROOT / "conf" / "experiment"
QUICK, LONG = "quick", "long"
#: Why an item has no study.
WITHOUT = {
    "no_figures": "it has no figures to recompute",
    "needs_hardware": "needs hardware that is not here",
    "needs_data": "needs data that are not public",
    "in_another": "compared in another study",
}


@dataclass(frozen=True)
class Item:
    """One table or figure (or a further question) of a paper. `target` None: it has no study, `state` and `why` say why not, and `nearest`
    what there is in its place. Of a study `why` is the reason, where it is known, should it deviate.

    `reading`: what of its published figures the text leaves open, and how we read it. `options`: of its function, as its YAML has them;
    `??` stands for one that the command must give.
    """

    paper: str
    name: str
    target: str | None
    about: str = ""
    budget: str = ""
    state: str = ""
    why: str = ""
    nearest: str = ""
    reading: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    config: Path | None = None

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def command(self) -> str:
        """The command that makes it.

        Of a long study it is the last that the head of its YAML shows, with the files that it must be given.
        """
        return self.commands[-1 if self.budget == LONG else 0] if self.target else ""

    @property
    def commands(self) -> list[str]:
        assert self.config is not None
        start = f"# {as_called('python run.py')} "  # of a line that an installed package has changed
        lines = self.config.read_text(encoding="utf-8").splitlines()
        return [line.removeprefix("# ").split("   #")[0] for line in lines if line.startswith(start)]


@dataclass(frozen=True)
class Paper:
    """`tables`, `figures`: how many it has, each of which is an item, numbered from 1."""

    name: str
    title: str
    source: str
    tables: int
    figures: int
    items: tuple[Item, ...]


@cache
def papers() -> tuple[Paper, ...]:
    """Those with a paper.yaml, in the order of their names. Their items in the order of the paper, figures first."""
    return tuple(_paper(path) for path in sorted(EXPERIMENTS.glob("*/paper.yaml")))


def items() -> tuple[Item, ...]:
    return tuple(item for paper in papers() for item in paper.items)


def studies_of(paper: str) -> dict[str, Item]:
    """Those items of a paper that have a study, by name."""
    return {item.name: item for one in papers() if one.name == paper for item in one.items if item.target}


def item_of(name: str) -> Item:
    """The item with the id PAPER/ITEM. UserError where there is none, or it has no study."""
    by_id = {item.id: item for item in items()}
    if name not in by_id:
        raise UserError(
            "no such study", where="studies", given=name, remedy=did_you_mean(name, by_id) or "see python -m recsys_lab studies"
        )
    item = by_id[name]
    if item.target is None:
        place = f"experiment={item.paper}/" if item.nearest.split(",")[0] in studies_of(item.paper) else ""
        what = f"has no study: {WITHOUT[item.state]} ({item.why})"
        raise UserError(what, where=name, remedy=f"the nearest: {place}{item.nearest}")
    return item


def with_studies(words: list[str]) -> list[str]:
    """`words`. UserError for a table or figure that they name, `experiment=neo/figure1`, and that cannot have a study: which says why."""
    names = [name for word in words if word.startswith("experiment=") for name in word.removeprefix("experiment=").split(",")]
    for name in names:
        if "/" in name and any(item.id == name and item.target is None for item in items()):
            item_of(name)
    return words


def _paper(path: Path) -> Paper:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    name = path.parent.name
    studies = [
        _study(config) for config in (CONFIGS / name).glob("*.yaml") if "study" in yaml.safe_load(config.read_text(encoding="utf-8"))
    ]
    studies += [Item(name, item, None, **why) for item, why in content["without"].items()]
    return Paper(name, content["title"], content["source"], content["tables"], content["figures"], tuple(sorted(studies, key=_place)))


def _study(path: Path) -> Item:
    text = path.read_text(encoding="utf-8")
    study = yaml.safe_load(text)["study"]
    common = {key.name for key in fields(StudyCommon)}
    options = {key: value for key, value in study.items() if key not in common and key != "_target_"}
    about = text.splitlines()[1].removeprefix("# ").split(": ", 1)[-1].rstrip(".")
    why, reading = study["why"] or "", study.get("reading")
    return Item(path.parent.name, path.stem, study["_target_"], about, study["budget"], "", why, "", reading, options, path)


def _place(item: Item) -> tuple[str, int, str]:
    kind = item.name.rstrip("0123456789")
    number = item.name[len(kind) :]
    return (kind if number else "~", int(number or 0), item.name)


def command_of(name: str, options: Mapping[str, Any]) -> str:
    """The line that regenerates the study, with those of its options that are not null."""
    words = {key: f"[{','.join(map(str, value))}]" if isinstance(value, list) else value for key, value in options.items()}
    overrides = (f"study.{key}={word}" for key, word in words.items() if word is not None)
    return " ".join([as_called(f"python run.py experiment={name}"), *overrides])
