"""`python -m recsys_lab completion bash`: prints what completes `recsys-lab` in a shell: commands, groups, choices, keys, values."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from recsys_lab.__main__ import COMMANDS, ROOT
from recsys_lab.base import paths
from recsys_lab.base.arguments import parser
from recsys_lab.config.completion import offered

#: Bash breaks words at = @ and :, zsh does not: what already stands on the line is taken off each answer.
SCRIPT = """\
_recsys_lab() {
    local line="${COMP_LINE:0:$COMP_POINT}" word current head reply
    word="${line##*[[:space:]]}"
    current="${COMP_WORDS[COMP_CWORD]}"
    case "$current" in [=:@]) current="" ;; esac
    head="${word%"$current"}"
    COMPREPLY=()
    while IFS= read -r reply; do
        case "$reply" in *[=./]) ;; *) reply="$reply " ;; esac
        COMPREPLY+=("${reply#"$head"}")
    done < <("${COMP_WORDS[0]}" completion --line "$line" 2>/dev/null)
}
complete -o default -o nospace -F _recsys_lab recsys-lab
"""
SHELLS = {"bash": SCRIPT, "zsh": "autoload -U +X bashcompinit && bashcompinit\n" + SCRIPT}
_OPTION = re.compile(r'add_argument\(\s*(?:"-\w", )?"(--[\w-]+)"')
_TAKES_WORDS = re.compile(r'add_argument\(\s*"(?:overrides|words|what)"')


def main(argv: list[str]) -> int:
    """Prints the script of a shell. With `--line`, what may end that line, which is what the script asks."""
    line = parser("completion", 'Completion of recsys-lab in a shell: eval "$(recsys-lab completion bash)"')
    line.add_argument("shell", nargs="?", default="bash", choices=sorted(SHELLS), help="bash if not given")
    line.add_argument("--line", help="print what may end this command line, one a line")
    given = line.parse_args(argv)
    print(SHELLS[given.shell] if given.line is None else "\n".join(answers(given.line)), end="" if given.line is None else "\n")
    return 0


def answers(line: str) -> list[str]:
    """Whole words that may stand in place of the last one of `line`, whose first one is the program."""
    *before, word = _split(line)
    if len(before) <= 1:
        return sorted(name for name in COMMANDS if name.startswith(word))
    name, *words = before[1:]
    if name not in COMMANDS:
        return []
    text = _file_of(COMMANDS[name][0]).read_text(encoding="utf-8")
    if word.startswith("-"):
        found = _OPTION.findall(text) if "add_argument" in text else ["--cfg", "--config-dir", "--multirun"]
        return sorted(option for option in {*found, "--help"} if option.startswith(word))
    if "add_argument" in text and not _TAKES_WORDS.search(text):
        return [shell for shell in sorted(SHELLS) if name == "completion" and shell.startswith(word)]
    own = Path("conf")
    return offered([paths.CONF, *([own] if own.is_dir() and not own.samefile(paths.CONF) else [])], words, word)


def _split(line: str) -> list[str]:
    """Its words, as a shell would. The last one is empty after a space."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is still open
        words = line.split()
    return [*words, ""] if not line or line[-1].isspace() else words


def _file_of(module: str) -> Path:
    inner = Path(*module.split(".")).with_suffix(".py")
    return next(path for root in (ROOT, paths.ROOT) if (path := root / inner).is_file())
