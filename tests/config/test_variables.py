"""A word that a variable of the environment does not have is refused, wherever the variable is read."""

from __future__ import annotations

import ast
import re

import pytest

import run
from recsys_lab import __main__
from recsys_lab.base import paths
from recsys_lab.base.environment import KERNELS, WORDS, word_of
from recsys_lab.config import calibrated
from recsys_lab.errors import UserError
from recsys_lab.executor.groups import timeout
from recsys_lab.kernels.measured import chosen

#: Those that name a folder or a number, or that a launcher sets for its ranks.
OF_MANY_WORDS = {"CALIBRATION", "SCRATCH", "TIMEOUT_S", "CORES", "LOCAL_RANK", "GOES_ON", "LISTENER", "OWN_LINK", "FROM_CHECKPOINT"}


@pytest.mark.parametrize("variable", WORDS)
def test_every_command_refuses_an_unknown_word(variable, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, WORDS[variable][0] + "x")
    for main, argv in ((run.main, ["mode=plan"]), (__main__.main, ["studies"])):
        assert main(argv) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: {variable}: no such word; given {WORDS[variable][0]}x; allowed: {', '.join(WORDS[variable])}")
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="no such word"):
        chosen(variable)


def test_variables_of_many_words_are_checked_where_they_are_read(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RECSYS_LAB_CALIBRATION", str(tmp_path / "file"))
    with pytest.raises(UserError, match="RECSYS_LAB_CALIBRATION: not a folder; given .*file, a file; allowed: a folder, or none"):
        calibrated.is_there()
    for word, says in (("soon", "not a number of seconds; given soon"), ("nan", "out of range; given nan"), ("0", "out of range")):
        monkeypatch.setenv("RECSYS_LAB_TIMEOUT_S", word)
        with pytest.raises(UserError, match=f"RECSYS_LAB_TIMEOUT_S: {says}"):
            timeout()


def test_an_empty_variable_says_nothing(monkeypatch):
    monkeypatch.setenv(KERNELS, "")
    assert word_of(KERNELS) is None and chosen(KERNELS) is None


def test_every_variable_of_few_words_is_read_with_its_words():
    """One that the sources name beside these is of many words, and checked where it is read."""
    sources = [path for room in ("recsys_lab", "launchers") for path in (paths.ROOT / room).rglob("*.py")]
    texts = [node.value for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    named = {name for text in texts if isinstance(text, str) for name in re.findall(r"RECSYS_LAB_\w+", text)}
    assert named == set(WORDS) | {f"RECSYS_LAB_{name}" for name in OF_MANY_WORDS}
