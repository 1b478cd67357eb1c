"""Python's values as words: Hydra reads back what was meant."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from recsys_lab.base.files import pasted, pasted_list
from recsys_lab.config.arguments import with_quotes
from recsys_lab.config.overrides import overrides_from_kwargs
from recsys_lab.errors import UserError


@pytest.mark.parametrize(
    "value",
    ["dcn", "a b", "it's", "(x", "ends with \\", "a'b\\'c", "x]", 3, -1, 0.1, 1e-9, True, None, ["id", "a, b"], {"k": [1, None]}, [], "é'"],
)
def test_a_value_comes_back(value: Any) -> None:
    (word,) = overrides_from_kwargs((), {"key": value}, "compose")
    assert OverridesParser.create().parse_override(word).value() == value


def test_scalars_of_numpy_and_paths_are_what_they_hold() -> None:
    words = overrides_from_kwargs(
        ["a=1"], {"b": np.int64(3), "c": np.float32(0.5), "d": Path("/tmp/my clicks, here"), "e": (Path("x"),)}, "compose"
    )
    assert words == ["a=1", "b=3", "c=0.5", "d='/tmp/my clicks, here'", "e=[x]"]


def test_text_that_the_command_line_reads_is_left_to_it() -> None:
    assert overrides_from_kwargs((), {"seed": "1,2", "data.drop": "[id,day]"}, "compose") == ["seed=1,2", "data.drop=[id,day]"]


@pytest.mark.parametrize(
    ("words", "keys", "says"),
    [
        ((None,), {}, "compose: a word is text such as 'model=dcn'; given None"),
        ((["model=dcn"],), {}, "given list; a list of words: compose(*words)"),
        (({"model": "dcn"},), {}, "given dict; keys are keywords: compose(model='dcn')"),
        ((), {"model": object()}, "compose model: no word has such a value; given object; allowed: text, a number"),
        ((), {"seed": float("nan")}, "compose seed: no word has such a value; given float"),
        ((), {"data.drop": [np.zeros(3)]}, "compose data.drop: no word has such a value; given ndarray"),
        ((), {"logger.tags": {1: 2}}, "compose logger.tags: no word has such a value; given dict"),
    ],
)
def test_what_is_no_word_is_refused(words: tuple[Any, ...], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as error:
        overrides_from_kwargs(words, keys, "compose")
    assert says in str(error.value)


NAMES = ("runs/1", "my runs, here", "a=b", "lauf/größe", "it's", "a${seed}b", "$HOME", "x\\", "[a]", "~", "a#b;c&d")


def pasted_word(words: str) -> Any:
    """What Hydra and OmegaConf read after a shell has read `words`."""
    asked = "import sys; print(sys.argv[1])"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(asked)} {words}"
    word = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.removesuffix("\n")
    value = OverridesParser.create().parse_override(with_quotes(word)).value()
    return OmegaConf.create({"seed": 1, "given": value}).given


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_a_command_is_that_folder_when_it_is_pasted(name: str) -> None:
    assert pasted_word(pasted("resume", Path(name))) == name


ODD = (
    "null",
    "True",
    "nan",
    "Inf",
    "1",
    "1e5",
    "a b",
    'say "x"',
    "a,b",
    "[x]",
    "{k}",
    "a:b",
    "back\\slash",
    "\\\\'",
    '\\\\"',
    "größe",
    "-",
    "_id",
)


def test_texts_in_a_list_are_those_texts_when_it_is_pasted() -> None:
    texts = [*NAMES, *ODD]
    assert list(pasted_word(pasted_list("data.drop", texts))) == texts
    for text in texts:
        assert list(pasted_word(pasted_list("data.drop", [text]))) == [text]


def test_a_plain_folder_stands_as_it_is() -> None:
    assert pasted("resume", Path("/tmp/runs/2026-01-01_10-00-00")) == "resume=/tmp/runs/2026-01-01_10-00-00"
    assert pasted_list("data.drop", ["id", "row id", "null"]) == """'data.drop=[id,"row id","null"]'"""
