"""`python -m recsys_lab COMMAND`, or `recsys-lab COMMAND` where pip installed it.

Each command is a file with `main(argv) -> int`, imported only when it is called.

Commands of the package are the files of `commands/`, commands of the papers the files `experiments/*/command.py`. The first line of such a
file is its entry in the help: "`python -m recsys_lab NAME ...`: what it shows or does".
"""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from recsys_lab.base import paths
from recsys_lab.base.environment import check_variables
from recsys_lab.base.files import check_here
from recsys_lab.base.streams import Streams, quiet_interrupts
from recsys_lab.errors import UNWRITABLE, UserError, broken_install, cause, did_you_mean

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__" or Path(sys.argv[0]).name == "recsys-lab":
    quiet_interrupts()  # before the commands are looked for
#: Columns where there is no terminal: each command is a line.
WHOLE = 1000
#: The exit code of a command that Ctrl-C ended.
INTERRUPTED = 130
#: Commands of earlier versions, and what does their work.
GONE = {"rank": "use decide with one cluster: decide model=... clusters=h100x64 batch=65536"}
ENTRY = re.compile(r"`python -m recsys_lab (\w+)\b[^`]*`: (.+?)\.?$", re.MULTILINE)


def commands_in(files: Iterable[Path], root: Path = ROOT) -> dict[str, tuple[str, str]]:
    """Name -> (module, what it does) of each command in `files`, whose modules are named from `root`."""
    commands = {}
    for file in files:
        entry = ENTRY.match(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
        assert entry is not None, f"{file} must begin as a command's file does: `python -m recsys_lab NAME`: what it does"
        commands[entry[1]] = (".".join(file.relative_to(root).with_suffix("").parts), entry[2])
    return commands


COMMANDS = commands_in(sorted((ROOT / "recsys_lab" / "commands").glob("[!_]*.py")))
COMMANDS |= commands_in(sorted((paths.ROOT / "experiments").glob("*/command.py")), paths.ROOT)


def main(argv: list[str]) -> int:
    """Runs the command that `argv` names, and returns the exit code."""
    with Streams() as streams:
        code = _called(argv)
    return streams.code(code)


def _called(argv: list[str]) -> int:
    try:
        check_here()
        check_variables()
        if not argv or argv[0] in ("-h", "--help"):
            print(_help())
            return 0
        if argv[0] not in COMMANDS:
            raise UserError(
                "no such command",
                where="python -m recsys_lab",
                given=argv[0],
                allowed=", ".join(COMMANDS),
                remedy=GONE.get(argv[0]) or did_you_mean(argv[0], COMMANDS),
            )
        paths.on_path()
        return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])
    except SystemExit as end:  # argparse's help
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except (Exception, KeyboardInterrupt) as error:
        if (code := _code(cause(error))) is None:
            raise
        return code


def _code(error: BaseException) -> int | None:
    """The exit code of what a command was ended by, with a line. None of a bug of ours."""
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    mistake = error if isinstance(error, UserError) else broken_install(error) or _refused(error)
    if mistake is None:
        return None
    print(f"error: {mistake}", file=sys.stderr)
    return mistake.exit_code


def _refused(error: BaseException) -> UserError | None:
    """`error` as the user's mistake, if the system refused to read or write; None otherwise."""
    if not isinstance(error, OSError) or error.errno not in UNWRITABLE:
        return None
    return UserError(f"cannot read or write: {error.strerror}", where=error.filename, remedy="check permissions and free space")


def console() -> int:
    """`recsys-lab COMMAND`: what pip installs."""
    return main(sys.argv[1:])


def _help() -> str:
    width = max(map(len, COMMANDS))
    columns = shutil.get_terminal_size((WHOLE, 0)).columns
    lines = [_entry(f"  {name:<{width}} ", about, columns) for name, (_, about) in COMMANDS.items()]
    program = "recsys-lab" if Path(sys.argv[0]).name == "recsys-lab" else "python -m recsys_lab"
    return "\n".join([f"usage: {program} COMMAND [...]", "", *lines, "", f"{program} COMMAND --help says more."])


def _entry(name: str, about: str, columns: int) -> str:
    """A command with what it does, wrapped beside its name. Where there is no room, the words come below it."""
    indent = len(name) if columns - len(name) >= 24 else 4
    first = name if indent == len(name) else f"{name.rstrip()}\n"
    lines = textwrap.wrap(about, max(columns - indent, 16), break_long_words=False, break_on_hyphens=False)
    words = f"\n{' ' * indent}".join(lines)
    return first + (words if first == name else " " * indent + words)


if __name__ == "__main__":
    sys.exit(console())
