"""The command line, checked before Hydra acts on it: what cannot be run is refused in one line and leaves nothing behind."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.config import words
from recsys_lab.config.folders import going_on, of_the_run, own_folder, run_to_resume, stored, words_of
from recsys_lab.config.frozen import differences, freeze, register_resolvers
from recsys_lab.config.schema import MOST_SHOWN, unknown_key
from recsys_lab.config.targets import Named, check_targets
from recsys_lab.errors import UserError, did_you_mean

CONF = Path(__file__).resolve().parents[2] / "conf"
#: Beyond this many jobs only the keys of a sweep are checked beforehand; each job still checks itself.
MOST_JOBS_COMPOSED = 64
#: Of a grid; a larger one is a mistyped range.
MOST_JOBS = 10_000


@dataclass(frozen=True)
class Invocation:
    """What a command line asks for. `config` is of a single run or of a sweep's first job, None of `--help` and its kin.

    `argv` is what Hydra is to be given: the user's words, with `++` before keys of free-form mappings, which Hydra would refuse. A sweep's
    seeds come first, so that every configuration has run once before any runs again. Its last word is `folder`, the run's or the
    sweep's, whose name may hold the time. `jobs`: the overrides of every job of a sweep, empty where another sweeper decides.
    """

    multirun: bool
    argv: tuple[str, ...]
    config: DictConfig | None = None
    folder: Path | None = None
    jobs: tuple[tuple[str, ...], ...] = ()

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
    register_resolvers()
    args = words.parsed(argv)
    argv = words.ordered(args)
    extra = [f"hydra.searchpath=[{_quoted(f'file://{Path(args.config_dir).resolve()}')}]"] if args.config_dir else []
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = _parse(args.overrides)
        if any(getattr(args, name) for name in words.ASKS_HYDRA):
            _check_keys(overrides, extra)
            return Invocation(bool(args.multirun), tuple(argv))
        free = _check_keys(overrides, extra)
        argv = ["++" + word if word in free else word for word in argv]
        args.overrides = ["++" + word if word in free else word for word in args.overrides]
        overrides = _parse(args.overrides)
        if args.multirun:
            _check_sweep(overrides)
            with hydra_errors():
                jobs = _jobs(sorted(overrides, key=lambda override: override.key_or_group != "seed"))
            fixed = [o.input_line for o in overrides if not o.is_sweep_override()]
            config, named = _compose([*(jobs[0] if jobs else fixed), *extra], "sweep")
            folder = own_folder(named, "hydra.sweep.dir")
            for job in jobs[:MOST_JOBS_COMPOSED]:
                freeze(_compose([*job, *extra])[0])
            said = (*_of_any_choice(_seeds_first(argv, args.overrides), overrides), _at("sweep", folder))
            return Invocation(True, said, freeze(config), folder, tuple(tuple(job) for job in jobs))
        for override in overrides:
            if override.is_sweep_override():
                raise UserError(
                    "several values in a single run", where=override.key_or_group, given=override.input_line, remedy="add -m for a sweep"
                )
        config, named = _compose([*args.overrides, *extra])
    if config.get("resume") is None:
        folder = Path(os.path.abspath(own_folder(named, "hydra.run.dir")))  # Hydra may change the folder that we are in
    else:
        folder = run_to_resume(config)
        extra += [str(o.input_line) for o in overrides if o.key_or_group == "hydra.searchpath"]
        config = _resumed(folder, of_the_run(args.overrides), extra, Named.of(overrides, args.config_dir))
    return Invocation(False, (*argv, _at("run", folder)), freeze(config), folder)


def started_by_hydra(config: DictConfig) -> StartedJob:
    """The job for which Hydra has composed `config`."""
    hydra = HydraConfig.get()
    config = with_choices(config, hydra.runtime.choices)
    return StartedJob(config, Path(hydra.runtime.output_dir), hydra.job.num, tuple(hydra.overrides.task))


def _at(kind: str, folder: Path) -> str:
    """The override that puts a run or a sweep into `folder`."""
    return f"hydra.{kind}.dir={_quoted(str(folder))}"


def _quoted(text: str) -> str:
    """As a value of an override, whatever is in it; an interpolation stands for itself."""
    return QuotedString(text.replace("${", "\\${"), Quote.single).with_quotes()


def _check_sweep(overrides: list[Override]) -> None:
    """Refuses what is of a single run."""
    said = {
        "resume": "resume a run without -m; a sweep goes on when its command is repeated with hydra.sweep.dir=DIR",
        "overwrite": "ablation.repeat=true runs every job again, and sets aside what was there",
    }
    for override in overrides:
        key = override.key_or_group
        if key in said and override.value() not in (None, False):
            raise UserError("not in a sweep", where=key, given=override.input_line, remedy=said[key])


def _resumed(folder: Path, words: list[str], extra: list[str], named: Named) -> DictConfig:
    """The run's own config. With further `words`, they must change nothing: says which fields differ if they do."""
    theirs = stored(folder, named)
    if words:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            ours, _ = _compose([*words_of(folder), *words, *extra])
        check_targets(ours, named, folder)
        differing = differences(freeze(ours), theirs)
        if differing:
            raise UserError(
                "the run to resume has another config",
                where=folder,
                given="; ".join(differing),
                remedy="resume it as it is (resume=RUN_FOLDER alone), or start a new run without resume",
            )
    return going_on(theirs, folder)


def with_choices(config: DictConfig, choices: dict[str, Any]) -> DictConfig:
    """`config` without Hydra's own node and with the chosen name of every group, which the record shows."""
    config = config.copy()
    with open_dict(config):
        config.pop("hydra", None)
        config.choices = {str(group): choice for group, choice in choices.items() if "/" not in group and "@" not in group}
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


def _compose(overrides: list[str], kind: str = "run") -> tuple[DictConfig, Any]:
    """The config, and what `hydra.run.dir` or, of `kind` sweep, `hydra.sweep.dir` names."""
    with hydra_errors():
        config = compose("config", overrides=overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # `hydra.run.dir` names the choices
        choices = OmegaConf.to_container(config.hydra.runtime.choices)
        folder = config.hydra[kind].dir
    assert isinstance(choices, dict)
    return with_choices(config, choices), folder


def _parse(overrides: list[str]) -> list[Override]:
    with hydra_errors():
        return OverridesParser.create(config_loader=GlobalHydra.instance().config_loader()).parse_overrides(overrides)


def _check_keys(overrides: list[Override], extra: list[str]) -> set[str]:
    """Every group, choice and key that is named must exist; the nearest spelling is offered if it does not.

    Returns the overrides whose keys are the user's own: those inside an empty mapping, such as sharder.planner.force.
    """
    free = set()
    loader = GlobalHydra.instance().config_loader()
    groups = [g for g in loader.list_groups("") if g != "hydra"]
    chosen = []
    for override in overrides:
        key = override.key_or_group
        if key in groups:
            _check_one_choice(override)
        if key in groups and not override.is_delete():
            _check_choices(override, _choices(loader, key), has_searchpath=bool(extra) or "hydra.searchpath" in str(overrides))
            first = next(iter(_values(override)), None)
            if first is not None:
                chosen.append(f"{override.input_line.split('=')[0]}={first}")
    config, _ = _compose([*chosen, *extra, *[str(o.input_line) for o in overrides if o.key_or_group == "hydra.searchpath"]])
    for override in overrides:
        key = override.key_or_group
        if key in groups or key.startswith("hydra"):
            continue
        parts = key.split(".")
        if parts[0] == "choices":  # ours: what was chosen
            raise unknown_key(key, sorted({str(k) for k in config if k != "choices"} | set(groups)))
        for depth in range(len(parts)):
            parent = OmegaConf.select(config, ".".join(parts[:depth])) if depth else config
            if not isinstance(parent, DictConfig):
                raise unknown_key(key, allowed=[])
            if parts[depth] not in parent:
                if depth and _free_form(parent):
                    free.add(str(override.input_line))
                if override.is_add() or (depth and _free_form(parent)):
                    break  # `+key=` and free-form mappings: the typed schema of the group decides
                known = {str(k) for k in parent if k not in ("_target_", "choices")} | (set(groups) if not depth else set())
                raise unknown_key(".".join(parts[: depth + 1]), allowed=sorted(known))
        else:
            if _free_form(OmegaConf.select(config, key, throw_on_resolution_failure=False)):
                free.add(str(override.input_line))
    return {word for word in free if not word.startswith("+")}


def _choices(loader: ConfigLoader, group: str) -> list[str]:
    """Of a group, those in its folders too: flexshard/table6."""
    inner = [f"{folder}/{choice}" for folder in loader.list_groups(group) for choice in loader.get_group_options(f"{group}/{folder}")]
    return [*loader.get_group_options(group), *inner]


def _check_one_choice(override: Override) -> None:
    """A group has one choice: not none, not several at once, and it cannot be left out."""
    group, value = override.key_or_group, None if override.is_delete() else override.value()
    if value is None or isinstance(value, (list, dict)):
        remedy = f"{group}=CHOICE; python run.py --help lists them"
        raise UserError("one choice is needed", where=group, given=override.input_line, remedy=remedy)


def _free_form(node: Any) -> bool:
    return isinstance(node, DictConfig) and len(node) == 0


def _values(override: Override) -> Iterator[str]:
    if override.is_sweep_override():
        if override.is_choice_sweep():
            yield from override.sweep_string_iterator()
    elif override.value() is not None:
        yield str(override.get_value_element_as_str())


def _check_choices(override: Override, options: list[str], has_searchpath: bool) -> None:
    if has_searchpath:
        return  # the user's own folder may hold it: Hydra's composition decides
    for value in _values(override):
        if value not in options and value.strip("[]'\"") not in options:
            raise UserError(
                "no such choice", where=override.key_or_group, given=value, allowed=", ".join(options), remedy=did_you_mean(value, options)
            )


def _jobs(overrides: list[Override]) -> list[list[str]]:
    """The override lists of a sweep's jobs, in the order of Hydra's basic sweeper; empty when another sweeper decides."""
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
        chosen = override.sweep_string_iterator() if sweeps else [override.get_value_element_as_str()]
        values[key] = [f"{key}={value}" for value in itertools.islice(chosen, MOST_JOBS + 1)]
        if not values[key]:
            raise UserError("no value to run", where=key, given=override.input_line)
    jobs = math.prod(map(len, values.values()))
    if jobs > MOST_JOBS:
        most = max(values, key=lambda key: len(values[key]))
        raise UserError("too many runs in one sweep", where=most, given=f"{jobs:,} or more", allowed=f"{MOST_JOBS:,} at most")
    return [list(job) for job in itertools.product(*values.values())]


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Hydra's and OmegaConf's own refusals as one line of ours."""
    try:
        yield
    except RecursionError:
        raise UserError("nested too deeply, or leads back to itself", where="command line") from None
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", where="conf", given=" ".join(str(error).split())) from None
    except (HydraException, OmegaConfBaseException, ValueError, OverflowError) as error:  # Hydra raises those two as well
        lines = [line.strip() for line in str(error).splitlines() if line.strip() and "full_key" not in line and "object_type" not in line]
        raise UserError(" ".join(lines[:2])[:MOST_SHOWN], where="command line", remedy="see python run.py --help") from None
