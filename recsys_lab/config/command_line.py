"""Checks the command line before Hydra acts on it. What cannot be run is refused in one line and leaves nothing behind."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override, Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from recsys_lab.base import paths
from recsys_lab.base.paths import CONF as CONF
from recsys_lab.config import words
from recsys_lab.config.composition import composed, hydra_errors, parsed, with_choices
from recsys_lab.config.folders import going_on, of_the_run, own_folder, run_to_resume, stored, words_of
from recsys_lab.config.frozen import differences, freeze, register_resolvers
from recsys_lab.config.hydra_keys import check_hydra_keys
from recsys_lab.config.installed import check_installed, check_submits
from recsys_lab.config.keys import check_keys, composed_at_once, offer_sizes
from recsys_lab.config.targets import Named, check_targets
from recsys_lab.errors import UserError

#: Beyond this many jobs only the keys of a sweep are checked beforehand; each job still checks itself.
MOST_JOBS_COMPOSED = 64
#: Of a grid; a larger one is a mistyped range.
MOST_JOBS = 10_000


@dataclass(frozen=True)
class Invocation:
    """What a command line asks for. `config` is of a single run or of a sweep's first job, None of `--help` and its kin.

    `argv` is what Hydra gets: the user's words, with `++` before keys of free-form mappings. Hydra would refuse those. A sweep's seeds come
    first, so that every configuration has run once before any runs again. Its last word is `folder`, the run's or the sweep's, whose name
    may hold the time. `jobs`: the overrides of every job of a sweep, empty where another sweeper decides. `overrides`: the words of a
    single run.
    """

    multirun: bool
    argv: tuple[str, ...]
    config: DictConfig | None = None
    folder: Path | None = None
    jobs: tuple[tuple[str, ...], ...] = ()
    overrides: tuple[str, ...] = ()

    @property
    def run(self) -> StartedJob | None:
        """The single run; None of a sweep and where Hydra answers."""
        if self.multirun or self.config is None or self.folder is None:
            return None
        return StartedJob(self.config, Path(os.path.abspath(self.folder)))

    def begun_config(self, follower: bool) -> DictConfig | None:
        """The config of a single run whose folder is there: of one that resumes, and on ranks that follow rank 0. None of any other."""
        return self.config if self.run is not None and (follower or self.run.config.resume) else None


@dataclass(frozen=True)
class StartedJob:
    """What runs in a folder. `number` and `overrides`: of a job of a sweep, its own."""

    config: DictConfig
    folder: Path
    number: int = 0
    overrides: tuple[str, ...] = ()


def read(argv: list[str]) -> Invocation:
    """Checks `argv` (without the program's name). Raises UserError for the first thing wrong with it."""
    return _read(argv, lambda config: None)


def read_to_run(argv: list[str]) -> Invocation:
    """The same for what runs next: raises UserError also where a choice's package, or SLURM, is not installed."""
    line = _read(argv, check_installed)
    if line.multirun and line.config is not None:
        check_submits(line.config)
    return line


def _read(argv: list[str], check: Callable[[DictConfig], None]) -> Invocation:
    """`check` gets the frozen config of the run, or of each job of a sweep."""
    register_resolvers()
    paths.importable()
    args = words.parsed(argv)
    argv = words.ordered(args)
    extra = [f"hydra.searchpath=[{_quoted(f'file://{Path(args.config_dir).resolve()}')}]"] if args.config_dir else []
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = parsed(args.overrides)
        check_hydra_keys(overrides)
        for folder in _choice_folders(args.config_dir, overrides):
            words.check_choices(folder)
        offer_sizes(overrides, args.config_dir)
        if any(getattr(args, name) for name in words.ASKS_HYDRA):
            check_keys(overrides, extra)
            _check_package(args.package, [*args.overrides, *extra])
            return Invocation(bool(args.multirun), tuple(argv))
        at_once = None if args.multirun else composed_at_once(args.overrides, overrides, extra)
        free = check_keys(overrides, extra) if at_once is None else set()
        argv = ["++" + word if word in free else word for word in argv]
        args.overrides = ["++" + word if word in free else word for word in args.overrides]
        overrides = parsed(args.overrides)
        if args.multirun:
            _check_sweep(overrides)
            with hydra_errors():
                jobs = _jobs(sorted(overrides, key=lambda override: override.key_or_group != "seed"))
            fixed = [o.input_line for o in overrides if not o.is_sweep_override()]
            config, folder_name = composed([*(jobs[0] if jobs else fixed), *extra], "sweep")
            folder = own_folder(folder_name, "hydra.sweep.dir")
            for job in jobs[:MOST_JOBS_COMPOSED]:
                check(freeze(composed([*job, *extra])[0]))
            line = _placed(_of_any_choice(_seeds_first(argv, args.overrides), overrides), "sweep", folder)
            check(config := freeze(config))
            return Invocation(True, line, config, folder, tuple(tuple(job) for job in jobs))
        for override in overrides:
            if override.is_sweep_override():
                raise UserError(
                    "several values in a single run", where=override.key_or_group, given=override.input_line, remedy="add -m for a sweep"
                )
        config, folder_name = at_once or composed([*args.overrides, *extra])
    if config.get("resume") is None:
        folder = Path(os.path.abspath(own_folder(folder_name, "hydra.run.dir")))  # Hydra may change the folder that we are in
    else:
        names_folder = any(o.key_or_group == "hydra.run.dir" for o in overrides)
        folder = run_to_resume(config, folder_name if names_folder else None)
        extra += [str(o.input_line) for o in overrides if o.key_or_group == "hydra.searchpath"]
        config = _resumed(folder, of_the_run(args.overrides), extra, Named.of(overrides, args.names_folder))
    check(config := freeze(config))
    return Invocation(False, _placed(argv, "run", folder), config, folder, overrides=tuple(args.overrides))


def _check_package(name: str | None, overrides: list[str]) -> None:
    """Of `--package`, which shows a part of the config."""
    if name is not None and OmegaConf.select(composed(overrides)[0], name) is None:
        given = name or "an empty word"
        raise UserError("no such part of the config", where="--package", given=given, remedy="name one, such as model or data.splits")


def _choice_folders(config_dir: str | None, overrides: list[Override]) -> list[Path]:
    """The user's own: `--config-dir`, and those of `hydra.searchpath`."""
    named = [override.value() for override in overrides if override.key_or_group == "hydra.searchpath"]
    listed = [item for value in named for item in (value if isinstance(value, list) else [value])]
    return [Path(str(folder).removeprefix("file://")) for folder in ([config_dir] if config_dir else []) + listed]


def started_by_hydra(config: DictConfig) -> StartedJob:
    """The job for which Hydra has composed `config`."""
    hydra = HydraConfig.get()
    config = with_choices(config, hydra.runtime.choices)
    return StartedJob(config, Path(hydra.runtime.output_dir), hydra.job.num, tuple(hydra.overrides.task))


def _placed(argv: list[str], kind: str, folder: Path) -> tuple[str, ...]:
    """`argv` with `folder` for a run or a sweep in place of the one that it names: the record has these words."""
    return (*(word for word in argv if word.lstrip("+").partition("=")[0] != f"hydra.{kind}.dir"), _at(kind, folder))


def _at(kind: str, folder: Path) -> str:
    """The override that puts a run or a sweep into `folder`."""
    return f"hydra.{kind}.dir={_quoted(str(folder))}"


def _quoted(text: str) -> str:
    """As a value of an override, whatever is in it. An interpolation stands for itself."""
    return QuotedString(text.replace("${", "\\${"), Quote.single).with_quotes()


def _check_sweep(overrides: list[Override]) -> None:
    """Refuses what is of a single run."""
    remedies = {
        "resume": "resume a run without -m; a sweep goes on when its command is repeated with hydra.sweep.dir=DIR",
        "overwrite": "ablation.repeat=true runs every job again, and sets aside what was there",
    }
    for override in overrides:
        key = override.key_or_group
        if key in remedies and override.value() not in (None, False):
            raise UserError("not in a sweep", where=key, given=override.input_line, remedy=remedies[key])


def _resumed(folder: Path, words: list[str], extra: list[str], user_modules: Named) -> DictConfig:
    """The run's own config. With further `words`, they may change where rows lie, and nothing else: says which fields differ if they do."""
    earlier = stored(folder, user_modules)
    config = going_on(earlier, folder)
    if words:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            new, _ = composed([*words_of(folder), *words, *extra])
        check_targets(new, user_modules, folder)
        new = freeze(new)
        differing = differences(new, earlier)
        if differing:
            raise UserError(
                "the run to resume has another config",
                where=folder,
                given="; ".join(differing),
                remedy="resume it as it is (resume=RUN_FOLDER alone), or start a new run without resume",
            )
        OmegaConf.update(config, "sharder.scratch", OmegaConf.select(new, "sharder.scratch"))
    return config


def _seeds_first(argv: list[str], overrides: list[str]) -> list[str]:
    """`argv` with `seed=...` before its other `overrides`, and after the options that stand before those."""
    seeds = [word for word in overrides if word.startswith("seed=")]
    if not seeds:
        return argv
    begin = argv.index(overrides[0])
    return [*argv[:begin], *seeds, *(word for word in argv[begin:] if word not in seeds)]


def _of_any_choice(argv: list[str], overrides: list[Override]) -> list[str]:
    """`argv` with `++` before keys of groups that the sweep runs through: Hydra begins with the default choice, which may lack them."""
    swept = {o.key_or_group for o in overrides if o.is_sweep_override()}
    inner = {str(o.input_line) for o in overrides if "." in o.key_or_group and o.key_or_group.split(".")[0] in swept}
    return [f"++{word}" if word in inner and not word.startswith(("+", "~")) else word for word in argv]


def _jobs(overrides: list[Override]) -> list[list[str]]:
    """The override lists of a sweep's jobs, in the order of Hydra's basic sweeper. Empty when another sweeper decides."""
    if any(o.key_or_group == "hydra/sweeper" for o in overrides):
        return []
    for override in overrides:
        if override.is_choice_sweep() and not list(override.sweep_string_iterator()):
            options = ", ".join(GlobalHydra.instance().config_loader().get_group_options(override.key_or_group))
            raise UserError("no choice fits", where=override.key_or_group, given=override.input_line, allowed=options)
    values: dict[str, list[str]] = {}  # by key, of which the last one counts
    for override in overrides:
        key, sweeps = override.get_key_element(), override.is_sweep_override()
        if sweeps and not override.is_discrete_sweep():
            remedy = "add hydra/sweeper=optuna, or give values: choice(0.1, 1)"
            raise UserError("an interval is searched, not run through", where=key, given=override.input_line, remedy=remedy)
        texts = override.sweep_string_iterator() if sweeps else [override.get_value_element_as_str()]
        values[key] = [f"{key}={value}" for value in itertools.islice(texts, MOST_JOBS + 1)]
        if not values[key]:
            raise UserError("no value to run", where=key, given=override.input_line)
    jobs = math.prod(map(len, values.values()))
    if jobs > MOST_JOBS:
        most = max(values, key=lambda key: len(values[key]))
        raise UserError("too many runs in one sweep", where=most, given=f"{jobs:,} or more", allowed=f"{MOST_JOBS:,} at most")
    return [list(job) for job in itertools.product(*values.values())]
