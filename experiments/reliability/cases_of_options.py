"""Cases from the declared options: every key with values that it does not declare, and with the ends of its range."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

from experiments.reliability.declared import Option, configs, options
from experiments.reliability.hostile import DOCUMENTED, Case
from recsys_lab.base.ranges import Range

#: Nothing is trained, and nothing is logged.
QUICK = ("mode=plan", "logger=none")
#: Groups that a plan depends on.
PLANNED = (
    "",
    "model",
    "cluster",
    "data",
    "sharder.planner",
    "sharder.towers",
    "sharder.executor",
    "simulate",
    "simulate.profile",
    "launcher",
)


def cases(draw: random.Random) -> Iterator[Case]:
    """Each option with one bad value, drawn, the ends of ranges that a plan depends on, and then the other bad values."""
    there = configs()
    named = [
        option
        for option in options(there)
        if re.fullmatch(r"[\w.]+", option.name) and (option.rule or option.numeric) and _is_there(option, there.get(option.line))
    ]
    later = []
    for option in named:
        bad = [_refused(option, value) for value in option.bad_values()]
        draw.shuffle(bad)
        yield from bad[:1]
        later += bad[1:]
    for option in named:
        yield from _ends(option)
    draw.shuffle(later)
    yield from later


def _is_there(option: Option, config: DictConfig | None) -> bool:
    """Whether its line has what it is a key of: `ablation.prune` is null, and only a search adds its keys."""
    return config is None or "." not in option.name or OmegaConf.select(config, option.name.rpartition(".")[0]) is not None


def _refused(option: Option, value: object) -> Case:
    word = option.word(value)
    named = option.name.split(".")[0] if isinstance(value, str) and not re.fullmatch(r"[\w./=+! -]*", value) else option.name
    return Case("options", f"{option.name} is not {str(value)[:40]!r}", (*option.line, *QUICK, word), named=named)


def _ends(option: Option) -> Iterator[Case]:
    if not isinstance(option.rule, Range) or option.where not in PLANNED:
        return
    for end in (option.rule.least, option.rule.most):
        if math.isfinite(end):
            value = int(end) if option.base is int else end
            words = (*option.line, "mode=simulate", "logger=none", option.word(value))
            yield Case("options", f"{option.name} at an end of its range", words, expected=DOCUMENTED)
