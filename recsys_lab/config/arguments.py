"""run.py's command line, in any order: Hydra's options (hydra.cc/docs/advanced/hydra-command-line-flags) and overrides."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from recsys_lab.base.arguments import Parser
from recsys_lab.base.paths import CONF
from recsys_lab.errors import UserError

#: Flags of Hydra, of which Hydra exports no parser, and its options with a value.
FLAGS = (
    ("--help", "-h"),
    ("--hydra-help",),
    ("--version",),
    ("--resolve",),
    ("--run", "-r"),
    ("--multirun", "-m"),
    ("--shell-completion", "-sc"),
)
WITH_VALUE = (
    ("--package", "-p"),
    ("--config-path", "-cp"),
    ("--config-name", "-cn"),
    ("--config-dir", "-cd"),
    ("--experimental-rerun",),
)
INFORMS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
#: Options with which Hydra answers a question.
ASKS_HYDRA = ("help", "hydra_help", "version", "cfg", "info", "shell_completion")
#: What to do about a word that is no text.
LOCALE = "write it in that encoding, or choose the one of your terminal, as LC_ALL=C.UTF-8"
#: Of an override's value, as Hydra's grammar divides it: an escaped letter, a quoted text, an interpolation, or one letter.
_TOKEN = re.compile(r"""\\.|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\$\{[^}]*\}|.""", re.DOTALL)
#: Text without spaces around it, but with one that is escaped.
_STRIPPED = re.compile(r"^[ \t]*((?:\\.|.)*?)[ \t]*$", re.DOTALL)
#: What Hydra reads without quotes. "=" must be escaped there, but in a function's arguments.
_BARE = re.compile(r"""(?:\\=|[\w\s/\-\\+.$%*@?|:,()\[\]{}'"])*""", re.ASCII)
#: A group with the place that its choice takes in the config.
_PLACED = re.compile(r"([+~]*)([\w/]+)@([\w.]+)(?==|$)")
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")


@dataclass(frozen=True)
class Line:
    """A command line, taken apart.

    Attributes:
        overrides: each as Hydra can read it.
        search_path: the override that has Hydra look for choices in `config_dir`; none without one.
        options: Hydra's, as its own parser wants them.
        multirun, asks_hydra, shows_config: whether it has -m, a question that Hydra answers, and `--cfg`.
        config_dir: the user's own folder of choices: named, or `conf` in this folder.
        names_folder: that folder, where the line itself names it: it then may name code for a resumed run.
    """

    overrides: tuple[str, ...]
    search_path: tuple[str, ...]
    options: tuple[str, ...]
    multirun: bool
    asks_hydra: bool
    shows_config: bool
    config_dir: str | None
    names_folder: str | None

    def for_hydra(self, overrides: Sequence[str]) -> tuple[str, ...]:
        folder = [] if self.config_dir is None else ["--config-dir", self.config_dir]
        return (*self.options, *folder, *overrides)


def parsed(argv: Sequence[str]) -> Line:
    """Raises UserError for an unknown option, and for those that are not ours."""
    for word in argv:
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # how Python holds what is no text
            raise UserError(f"a word is not {sys.getfilesystemencoding().upper()}", where="command line", given=ascii(word), remedy=LOCALE)
    parser = Parser(prog="python run.py", add_help=False)
    parser.add_argument("overrides", nargs="*")
    for names in FLAGS:
        parser.add_argument(*names, action="store_true")
    for names in WITH_VALUE:
        parser.add_argument(*names)
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=INFORMS)
    args = vars(parser.parse_intermixed_args(list(argv)))
    _check(args)
    overrides = tuple(as_hydra_names(with_quotes(word)) for word in args["overrides"])
    searches = any(word.lstrip("+").startswith("hydra.searchpath=") for word in overrides)
    config_dir = args["config_dir"] or (None if searches else conf_here())
    search_path = () if config_dir is None else (f"hydra.searchpath=[{quoted(f'file://{Path(config_dir).resolve()}')}]",)
    options = [names[0] for names in FLAGS if args[names[0].removeprefix("--").replace("-", "_")]]
    for name in ("cfg", "info", "package"):
        options += [] if args[name] is None else [f"--{name}", args[name]]
    asks = any(args[name] for name in ASKS_HYDRA)
    return Line(overrides, search_path, tuple(options), args["multirun"], asks, args["cfg"] is not None, config_dir, args["config_dir"])


def _check(args: dict[str, Any]) -> None:
    for option, only in (("config_name", ("config", "config.yaml")), ("config_path", ("conf",))):
        if (value := args[option]) is not None and value not in only:
            where, remedy = "--" + option.replace("_", "-"), "bring choices of your own with --config-dir DIR"
            raise UserError("run.py has one config", where=where, given=value or "an empty word", allowed=only[0], remedy=remedy)
    if args["experimental_rerun"] is not None:
        raise UserError("a pickle is not loaded", where="--experimental-rerun", remedy="use resume=RUN_FOLDER")
    if args["resolve"] and not (args["cfg"] or args["help"]):
        raise UserError("it goes with --cfg", where="--resolve", remedy="python run.py --cfg job --resolve")
    if args["config_dir"] is not None and not (args["config_dir"] and Path(args["config_dir"]).is_dir()):
        raise UserError("not a folder", where="--config-dir", given=args["config_dir"] or "an empty word")


def override(key: str, value: str) -> str:
    """`key=value` for any text as the value. An interpolation in it stands for itself."""
    return f"{key}={quoted(value)}"


def quoted(text: str) -> str:
    return QuotedString(text.replace("${", "\\${"), Quote.single).with_quotes()


def as_hydra_names(word: str) -> str:
    """`cluster/device@cluster.device=l4` as `cluster/device=l4`: where a group's place is its own name, Hydra refuses to read it twice."""
    match = _PLACED.match(word)
    return f"{match[1]}{match[2]}{word[match.end() :]}" if match and match[3] == match[2].replace("/", ".") else word


def with_quotes(word: str) -> str:
    """An override with quotes around each text of its value that Hydra takes in quotes alone, such as ~/clicks, José or step=48.

    Keys of a mapping stay as they are: Hydra takes none in quotes.
    """
    key, equals, value = word.partition("=")
    if _BARE.fullmatch(value):
        return word
    output, text, inside, at_key = "", "", [""], False
    for token in _TOKEN.findall(value):
        names_argument = token == "=" and inside[-1] == "("
        if token not in tuple("()[]{},") and not names_argument and not (token == ":" and at_key):
            text += token
            continue
        output, text = output + (text if at_key else _with_quotes(text)) + token, ""
        if token in "([{":
            inside.append(token)
        elif token in ")]}" and len(inside) > 1:
            inside.pop()
        at_key = token in "{," and inside[-1] == "{"
    return key + equals + output + (text if at_key else _with_quotes(text))


def _with_quotes(text: str) -> str:
    """`text` in quotes where it needs them and has none."""
    bare = _STRIPPED.sub(r"\1", text)
    if _BARE.fullmatch(bare) or bare[0] in "'\"":
        return text
    return QuotedString(_ESCAPED.sub(r"\1", bare), Quote.single).with_quotes()


def conf_here() -> str | None:
    """`conf` in this folder, where it holds choices of the user's own: as if `--config-dir conf` were said."""
    folder = Path("conf")
    if not folder.is_dir() or folder.samefile(CONF):
        return None
    return str(folder) if any(path.is_dir() and (CONF / path.name).is_dir() for path in folder.iterdir()) else None
