"""`read` turns a command line into what it asks for: composed once, checked once, frozen. What cannot be run is refused in one line."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from recsys_lab.base import paths
from recsys_lab.base.paths import CONF as CONF
from recsys_lab.config import arguments, sized
from recsys_lab.config.composition import composed, composed_job, composed_sweep, hydra_errors, parsed, with_any_key, with_choices
from recsys_lab.config.folders import (
    going_on,
    is_job_of_sweep,
    of_the_run,
    own_folder,
    run_to_resume,
    stored,
    to_start_from,
    with_vocabulary,
    words_after,
    words_of,
)
from recsys_lab.config.frozen import differences, freeze, moves, plain, register_resolvers
from recsys_lab.config.hydra_keys import check_hydra_keys
from recsys_lab.config.targets import Named, check_targets
from recsys_lab.errors import UserError

#: Beyond this many jobs a sweep's are checked when they start.
MOST_JOBS_COMPOSED = 64
#: Of a grid; a larger one is a mistyped range.
MOST_JOBS = 10_000


@dataclass(frozen=True)
class Question:
    """A line that Hydra answers, such as `--help` and `--cfg job`: its words, options first."""

    argv: tuple[str, ...]


@dataclass(frozen=True)
class SingleRun:
    """A run: its frozen config, its folder, the overrides that the user gave, and what Hydra composed (None of a run that resumes)."""

    config: DictConfig
    folder: Path
    overrides: tuple[str, ...] = ()
    composed: DictConfig | None = None


@dataclass(frozen=True)
class JobComposer:
    """Composes a sweep's jobs from what they have in `common`. A job that starts from a run has that run's words before its own.

    `code`: the modules that the command names.
    """

    common: DictConfig
    code: Named

    def __call__(self, job: tuple[str, ...]) -> DictConfig:
        words, run = _after_run(job)
        config = composed_job(self.common, words)
        if run is not None:
            check_targets(with_choices(config), self.code, run)
            with read_write(config.hydra), open_dict(config.hydra):
                config.hydra.overrides.task = list(job)  # by which the sweep knows the job
        return config


@dataclass(frozen=True)
class Sweep:
    """A sweep: what its jobs have in common, where it lies, and its jobs' overrides (none where another sweeper decides).

    Attributes:
        folder: of the sweep.
        jobs: the overrides of each, in the order in which they run.
        common: as Hydra composes it, Hydra's own node in it.
        composed: what Hydra composed for the first jobs, by their overrides.
        configs: the same, frozen; where another sweeper decides, what it begins with.
        compose: composes any other job.
    """

    folder: Path
    jobs: tuple[tuple[str, ...], ...]
    common: DictConfig
    composed: Mapping[tuple[str, ...], DictConfig]
    configs: tuple[DictConfig, ...]
    compose: JobComposer

    @property
    def config(self) -> DictConfig:
        """Of its first job."""
        return self.configs[0]


def read(argv: Sequence[str]) -> SingleRun | Sweep | Question:
    """What `argv` (without the program's name) asks for. Raises UserError for the first thing wrong with it."""
    register_resolvers()
    paths.importable()
    line = arguments.parsed(argv)
    with initialize_config_dir(str(CONF), job_name="run", version_base="1.3"):
        overrides = parsed(line.overrides)
        check_hydra_keys(overrides)
        sized.register(overrides, line.config_dir)
        if line.asks_hydra:
            return _question(line, overrides)
        if line.multirun:
            return _sweep(line, overrides)
        values = _values(overrides)
        if values.get("resume") is not None:
            return _resumed(line, overrides, values)
        words, earlier = (line.overrides, None) if values.get("start_from") is None else _after_run(line.overrides)
        config = composed([*words, *line.search_path])
        folder = Path(os.path.abspath(own_folder(config.hydra.run.dir, "hydra.run.dir")))  # its name may hold the time
        chosen = with_choices(config)
        if earlier is not None:
            check_targets(chosen, Named.of(overrides, line.names_folder), earlier)
        return SingleRun(freeze(chosen), folder, words, config)


def _after_run(words: Sequence[str]) -> tuple[tuple[str, ...], Path | None]:
    """`words` after those of the run that they start from, and that run's folder; None: they start from none."""
    start_from = _values(parsed(words)).get("start_from")
    if start_from is None:
        return tuple(words), None
    named, run = to_start_from(start_from)
    own = [word for word in words if not word.startswith("start_from=")]
    known = with_vocabulary(own, run)
    return tuple(words_after(_words_of(run), [*own, *known, arguments.override("start_from", str(named))])), run


def _words_of(run: Path) -> list[str]:
    """The overrides with which a run was begun. A sweep's job keeps its own alone: before them come those of the run it started from."""
    words = words_of(run)
    return list(_after_run(words)[0]) if is_job_of_sweep(run) else words


def read_run(argv: Sequence[str], where: str, needed: str = "one run is needed") -> SingleRun:
    """The same of a line that must be one run. `where`: who needs it."""
    run = read(argv)
    if not isinstance(run, SingleRun):
        raise UserError(f"{needed}, not a sweep", where=where, given=" ".join(argv), remedy="sweeps: python run.py -m ...")
    return run


def _question(line: arguments.Line, overrides: Sequence[Override]) -> Question:
    """Its words must be a config, unless they are of a sweep. `--cfg` shows one that could run: its values are checked too."""
    if overrides and not line.multirun and not any(override.is_sweep_override() for override in overrides):
        config = composed([*line.overrides, *line.search_path])
        if line.shows_config:
            freeze(with_choices(config))
    if not line.shows_config:
        return Question(line.for_hydra(line.overrides))
    return Question(line.for_hydra(with_any_key(line.overrides)))


def _values(overrides: Sequence[Override]) -> dict[str, Any]:
    """The value of each key that a single run is given, of which the last one counts."""
    for override in overrides:
        if override.is_sweep_override():
            where, remedy = override.key_or_group, "add -m for a sweep"
            raise UserError("several values in a single run", where=where, given=override.input_line, remedy=remedy)
    return {override.key_or_group: override.value() for override in overrides}


def _resumed(line: arguments.Line, overrides: Sequence[Override], values: Mapping[str, Any]) -> SingleRun:
    """The run in the folder that `resume` names, with its own config. Further words may change where it runs and how tables lie there."""
    folder = run_to_resume(values["resume"], bool(values.get("overwrite")), values.get("hydra.run.dir"))
    code = Named.of(overrides, line.names_folder)
    earlier = stored(folder, code)
    config = going_on(earlier, folder)
    if words := of_the_run(line.overrides):
        words = words_after(_words_of(folder), words)
        new = with_choices(composed([*words, *line.search_path, *_search_path(overrides)]))
        check_targets(new, code, folder)
        frozen = freeze(new)
        apart = tuple(key for key in moves(plain(frozen)) if key in moves(plain(earlier)))
        if differing := differences(frozen, earlier, apart):
            remedy = "resume it as it is (resume=RUN_FOLDER alone), or start a new run without resume"
            raise UserError("the run to resume has another config", where=folder, given="; ".join(differing), remedy=remedy)
        config = going_on(frozen, folder)
    return SingleRun(freeze(config), folder, tuple(words))


def _search_path(overrides: Sequence[Override]) -> list[str]:
    return [str(override.input_line) for override in overrides if override.key_or_group == "hydra.searchpath"]


def _sweep(line: arguments.Line, overrides: Sequence[Override]) -> Sweep:
    _check_sweep(overrides)
    # seeds first: every configuration runs once before any runs again
    words = sorted([*line.overrides, *line.search_path], key=lambda word: not word.startswith("seed="))
    common = composed_sweep(words)
    params = _of_the_experiment(common)
    sized.register(params, line.config_dir)
    with hydra_errors():
        jobs = _jobs([*params, *parsed(words)])
    folder = own_folder(common.hydra.sweep.dir, "hydra.sweep.dir")
    with read_write(common.hydra), open_dict(common.hydra):
        common.hydra.sweep.dir = str(folder).replace("${", "\\${")  # an interpolation in its name stands for itself
        common.hydra.overrides.hydra = [*common.hydra.overrides.hydra, arguments.override("hydra.sweep.dir", str(folder))]
    compose = JobComposer(common, Named.of(overrides, line.names_folder))
    configs = {job: compose(job) for job in jobs[:MOST_JOBS_COMPOSED]}
    frozen = [freeze(with_choices(config)) for config in configs.values()]
    if not frozen:  # what a search begins with
        fixed = [str(o.input_line) for o in overrides if not o.is_sweep_override()]
        frozen = [freeze(with_choices(compose(tuple(fixed))))]
    return Sweep(folder, jobs, common, configs, tuple(frozen), compose)


def _of_the_experiment(common: DictConfig) -> list[Override]:
    """What an experiment's own `hydra.sweeper.params` run through; words of the line win."""
    params = OmegaConf.select(common, "hydra.sweeper.params") or {}
    return parsed([f"{key}={value}" for key, value in params.items()])


class JobConfigs:
    """A sweep's loader of configs, which its sweeper and launcher ask: jobs that were checked are not composed again."""

    def __init__(self, sweep: Sweep):
        self.compose, self.configs = sweep.compose, dict(sweep.composed)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """As Hydra's own. Each answer is a copy: a launcher writes into it."""
        job = tuple(sweep_overrides)
        if job not in self.configs:
            self.configs[job] = self.compose(job)
        return self.configs[job].copy()

    def __getattr__(self, name: str) -> Any:
        """Anything else is Hydra's: what groups there are, and where."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(GlobalHydra.instance().config_loader(), name)


def _check_sweep(overrides: Sequence[Override]) -> None:
    """Refuses what is of a single run."""
    remedies = {
        "resume": "resume a run without -m; a sweep goes on when its command is repeated with hydra.sweep.dir=DIR",
        "overwrite": "ablation.repeat=true runs every job again, and sets aside what was there",
        "predictions": "its jobs would write one file: give each run a line of its own, without -m",
    }
    for override in overrides:
        key = override.key_or_group
        if key in remedies and override.value() not in (None, False):
            raise UserError("not in a sweep", where=key, given=override.input_line, remedy=remedies[key])


def _jobs(overrides: Sequence[Override]) -> tuple[tuple[str, ...], ...]:
    """The overrides of a sweep's jobs, in the order of Hydra's basic sweeper. Empty where another sweeper decides."""
    if any(override.key_or_group == "hydra/sweeper" for override in overrides):
        return ()
    values: dict[str, list[str]] = {}  # by key, of which the last one counts
    for override in overrides:
        if override.key_or_group.startswith("hydra."):
            continue
        key, sweeps = override.get_key_element(), override.is_sweep_override()
        if sweeps and not override.is_discrete_sweep():
            remedy = "add hydra/sweeper=optuna, or give values: choice(0.1, 1)"
            raise UserError("an interval is searched, not run through", where=key, given=override.input_line, remedy=remedy)
        texts = override.sweep_string_iterator() if sweeps else [override.get_value_element_as_str()]
        values[key] = [f"{key}={value}" for value in itertools.islice(texts, MOST_JOBS + 1)]
        if not values[key]:
            options = ", ".join(GlobalHydra.instance().config_loader().get_group_options(override.key_or_group)) or None
            raise UserError("no choice fits", where=key, given=override.input_line, allowed=options)
    jobs = math.prod(map(len, values.values()))
    if jobs > MOST_JOBS:
        most = max(values, key=lambda key: len(values[key]))
        raise UserError("too many runs in one sweep", where=most, given=f"{jobs:,} or more", allowed=f"{MOST_JOBS:,} at most")
    return tuple(itertools.product(*values.values()))
