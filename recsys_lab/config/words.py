"""The words of run.py's command line, in any order: Hydra's options (hydra.cc/docs/advanced/hydra-command-line-flags) and overrides."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Quote, QuotedString

from recsys_lab.base.arguments import Parser
from recsys_lab.base.files import what_is
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
#: What Hydra reads without quotes.
_BARE = re.compile(r"""[\w\s/\-\\+.$%*@?|:=,()\[\]{}'"]*""", re.ASCII)
#: A group with the place that its choice takes in the config.
_PLACED = re.compile(r"([+~]*)([\w/]+)@([\w.]+)(?==|$)")
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The options, and the `overrides` that stand among them. Raises UserError for an unknown option, and for those that are not ours."""
    for word in argv:
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # how Python holds what is no text
            raise UserError(f"a word is not {sys.getfilesystemencoding().upper()}", where="command line", given=ascii(word), remedy=LOCALE)
    line = Parser(prog="python run.py", add_help=False)
    line.add_argument("overrides", nargs="*")
    for names in FLAGS:
        line.add_argument(*names, action="store_true")
    for names in WITH_VALUE:
        line.add_argument(*names)
    line.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    line.add_argument("--info", "-i", nargs="?", const="all", choices=INFORMS)
    args = line.parse_intermixed_args(list(argv))
    args.overrides = [as_hydra_names(with_quotes(word)) for word in args.overrides]
    _check(args)
    args.names_folder = args.config_dir  # a folder that is only there names no code for a resumed run
    if args.config_dir is None and not any(word.lstrip("+").startswith("hydra.searchpath=") for word in args.overrides):
        args.config_dir = conf_here()
    return args


def as_hydra_names(word: str) -> str:
    """`cluster/device@cluster.device=l4` as `cluster/device=l4`: where a group's place is its own name, Hydra refuses to read it twice."""
    match = _PLACED.match(word)
    return f"{match[1]}{match[2]}{word[match.end() :]}" if match and match[3] == match[2].replace("/", ".") else word


def with_quotes(word: str) -> str:
    """An override with quotes around each text of its value that Hydra takes in quotes alone, such as ~/clicks or José.

    Keys of a mapping stay as they are: Hydra takes none in quotes.
    """
    key, equals, value = word.partition("=")
    if _BARE.fullmatch(value):
        return word
    output, text, inside, at_key = "", "", [""], False
    for token in _TOKEN.findall(value):
        if token not in tuple("()[]{},=") and not (token == ":" and at_key):
            text += token
            continue
        output, text = output + (text if at_key else _quoted(text)) + token, ""
        if token in "([{":
            inside.append(token)
        elif token in ")]}" and len(inside) > 1:
            inside.pop()
        at_key = token in "{," and inside[-1] == "{"
    return key + equals + output + (text if at_key else _quoted(text))


def _quoted(text: str) -> str:
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


def check_choices(folder: Path) -> None:
    """Raises UserError for a file of choices in `folder` that is none: Hydra would wait for what never comes through a pipe."""
    for group in (path.name for path in CONF.iterdir() if path.is_dir()):
        for path in sorted((folder / group).rglob("*.yaml")):
            if (found := what_is(path)) is not None:
                raise UserError("not a file that can be read", where=path, given=found, remedy="take it away, or put a YAML there")


def ordered(args: argparse.Namespace) -> list[str]:
    """The same command line with its options first, as Hydra's own parser wants it."""
    words = [names[0] for names in FLAGS if getattr(args, _name(names[0]))]
    for option in ("--cfg", "--info", *(names[0] for names in WITH_VALUE)):
        if (value := getattr(args, _name(option))) is not None:
            words += [option, value]
    return [*words, *args.overrides]


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _check(args: argparse.Namespace) -> None:
    for option, only in (("config_name", ("config", "config.yaml")), ("config_path", ("conf",))):
        if (given := getattr(args, option)) is not None and given not in only:
            where, remedy = "--" + option.replace("_", "-"), "bring choices of your own with --config-dir DIR"
            raise UserError("run.py has one config", where=where, given=given or "an empty word", allowed=only[0], remedy=remedy)
    if args.experimental_rerun is not None:
        raise UserError("a pickle is not loaded", where="--experimental-rerun", remedy="use resume=RUN_FOLDER")
    if args.resolve and not (args.cfg or args.help):
        raise UserError("it goes with --cfg", where="--resolve", remedy="python run.py --cfg job --resolve")
    if args.config_dir is not None and not (args.config_dir and Path(args.config_dir).is_dir()):
        raise UserError("not a folder", where="--config-dir", given=args.config_dir or "an empty word")
