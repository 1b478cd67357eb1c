"""The folder that a command line means: a new run's or sweep's own, or one whose run goes on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.base.files import override_of, path_of, write_text
from recsys_lab.base.paths import sweep_of
from recsys_lab.config.frozen import CONFIG_FILE, freeze, load
from recsys_lab.config.options import JUDGES
from recsys_lab.config.targets import Named, check_targets
from recsys_lab.errors import UserError

#: In a run folder: rows of values and scaling, of data that have them. With this file in it, of data=table.
VOCABULARY, OF_TABLE = "vocabulary", "vocabulary.json"
#: And the words with which it was begun.
WORDS_OF_RUN = Path(".hydra") / "overrides.yaml"
CHECKOUT = Path(__file__).resolve().parents[2]


def own_folder(text: Any, where: str) -> Path:
    """The folder that `text` names. UserError where a run would not have it to itself: the current folder, home, or one above them."""
    remedy = f"name a folder of its own, such as {where}=runs/first"
    if not isinstance(text, str) or not text.strip():
        raise UserError("no name of a folder", where=where, given=repr(text), remedy=remedy)
    path = path_of(text, where)
    folder = os.path.realpath(path)
    shared = {"the current folder": os.getcwd(), "your home": os.path.expanduser("~"), "the checkout": str(CHECKOUT)}
    for name, place in shared.items():
        if os.path.commonpath([folder, os.path.realpath(place)]) == folder:
            raise UserError(f"a run there would mix its files with {name}", where=where, given=text, remedy=remedy)
    return path


def run_to_resume(name: Any, overwrite: bool, run_dir: object = None) -> Path:
    """The folder of the run `name`. `run_dir`: the run folder that the command line names, if it does.

    UserError where it names none, where the run is to be removed as well, and where `run_dir` is another.
    """
    if isinstance(name, list | dict) or not str(name).strip():
        raise UserError("no name of a folder", where="resume", given=repr(name), remedy="name that of a run: resume=RUN_FOLDER")
    if overwrite:
        raise UserError("a run cannot go on and be removed", where="overwrite", given=f"true with resume={name}", remedy="drop one")
    folder = os.path.realpath(path_of(str(name), "resume"))  # a link in a circle raises nothing here
    if run_dir is not None and os.path.realpath(path_of(str(run_dir), "hydra.run.dir")) != folder:
        given = f"{run_dir} with resume={name}"
        raise UserError("a run goes on in its own folder", where="hydra.run.dir", given=given, remedy="drop one")
    return Path(folder)


def to_start_from(name: Any) -> tuple[Path, Path]:
    """The folder that `name` names, and that of its run: `name` is a run, one of its checkpoints, or an export. UserError otherwise."""
    if not isinstance(name, str | int | float) or not str(name).strip():
        raise UserError("no name of a folder", where="start_from", given=repr(name), remedy="name that of a run: start_from=RUN_FOLDER")
    folder = Path(os.path.realpath(path_of(str(name), "start_from")))
    run = folder if (folder / CONFIG_FILE).is_file() else folder.parent.parent
    if not (run / CONFIG_FILE).is_file() or (run != folder and folder.parent.name != "checkpoints"):
        what = "a folder without config.yaml" if folder.is_dir() else "no folder"
        allowed = "a run folder, one of its checkpoints, or an export"
        raise UserError("no run to start from", where="start_from", given=f"{name}: {what}", allowed=allowed)
    return folder, run


def with_vocabulary(words: Sequence[str], run: Path) -> list[str]:
    """What the line's `words` need to read rows as `run` did, where it kept how: they then mean its rows of values."""
    given = {_key(word): word.partition("=")[2] for word in words}
    if not (run / VOCABULARY / OF_TABLE).is_file() or given.get("data", "table") != "table":
        return []
    alone = given.get("mode") in JUDGES and "data.splits.test" in given
    return [override_of("data.vocabulary", run / VOCABULARY), *(["data.only_test=true"] if alone else [])]


def words_after(earlier: Sequence[str], words: Sequence[str]) -> list[str]:
    """`words` after those of an `earlier` run, less what they say anew: a key, or a whole group with the keys in it."""
    keys = {_key(word) for word in words}
    return [*(one for one in earlier if not keys & {_key(one), _key(one).partition(".")[0].partition("@")[0]}), *words]


def stored(folder: Path, user_modules: Named) -> DictConfig:
    """The frozen config of the run in `folder`. UserError where there is none, or one whose code is not in `user_modules`."""
    config = load(folder)
    check_targets(config, user_modules, folder)
    try:
        assert isinstance(config.get("choices"), DictConfig), "choices"
        return freeze(config)
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, OmegaConfBaseException) as error:
        raise UserError(
            f"not the config of a run ({type(error).__name__}: {error})",
            where=folder / CONFIG_FILE,
            remedy="restore the file, or start again in another folder",
        ) from None


def going_on(config: DictConfig, folder: Path) -> DictConfig:
    """`config` of the run in `folder`, as one that resumes."""
    config = OmegaConf.create(OmegaConf.to_container(config))
    config.resume, config.overwrite = str(folder), False
    return config


def words_of(folder: Path) -> list[str]:
    """The overrides with which the run in `folder` was begun. None where it does not say. UserError where they are no overrides."""
    path = folder / WORDS_OF_RUN
    if not path.is_file():
        return []
    try:
        words = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError("not a list of overrides", where=path, remedy="resume the run without further words: resume=RUN_FOLDER")
    return of_the_run(words)


def is_job_of_sweep(folder: Path) -> bool:
    return sweep_of(folder) is not None


def save_hydra(folder: Path, composed: DictConfig, words: Iterable[str]) -> None:
    """Writes `.hydra/`, as Hydra does: the config, its own node with the folder in it, and the overrides that the user gave."""
    hydra, config = OmegaConf.masked_copy(composed, ["hydra"]), composed.copy()
    with read_write(hydra.hydra.runtime), open_dict(hydra.hydra.runtime), open_dict(config):
        hydra.hydra.runtime.output_dir = str(folder)
        del config["hydra"]
    for name, content in (("config.yaml", config), ("hydra.yaml", hydra)):
        write_text(folder / ".hydra" / name, OmegaConf.to_yaml(content))
    save_words(folder, words)


def save_words(folder: Path, words: Iterable[str]) -> None:
    """Writes the overrides that the user gave, where `words_of` reads them."""
    choices = [word for word in words if not word.lstrip("+~").startswith("hydra")]
    write_text(folder / WORDS_OF_RUN, yaml.safe_dump(choices, allow_unicode=True))


def of_the_run(words: Iterable[str]) -> list[str]:
    """`words` without those that say where a run lies and how it begins."""
    keys = {word: _key(word) for word in words}
    return [word for word, key in keys.items() if key not in ("resume", "overwrite") and not key.startswith("hydra")]


def _key(word: str) -> str:
    """Of an override, the key or group that it sets."""
    return word.lstrip("+~").partition("=")[0]
