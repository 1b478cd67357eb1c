"""The words of a command line, in any order, and quotes where Hydra wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import HydraException
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.base.paths import CONF
from recsys_lab.config.words import check_choices, conf_here, ordered, parsed, with_quotes
from recsys_lab.errors import UserError

LETTERS = st.text("abé~ü", min_size=1, max_size=3)
PLACES = st.sampled_from(["", " ", "\t", "  "])


def in_hydras_words(value: Any) -> Any:
    """A parsed value without Hydra's classes for quotes."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [in_hydras_words(one) for one in value]
    return {str(key): in_hydras_words(one) for key, one in value.items()} if isinstance(value, dict) else value


def with_letters(value: Any, letters: str) -> Any:
    """`value` with `letters` for its x and y."""
    if isinstance(value, str):
        return value.translate(str.maketrans("xy", letters))
    if isinstance(value, list):
        return [with_letters(one, letters) for one in value]
    return {key: with_letters(one, letters) for key, one in value.items()} if isinstance(value, dict) else value


def read(word: str) -> Any:
    [override] = OverridesParser.create().parse_overrides([word])
    value: Any = override.value()
    return in_hydras_words(list(value.list) if override.is_sweep_override() else value)


def written(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    spaced = st.tuples(PLACES, values, PLACES).map("".join)
    lists = st.lists(spaced, min_size=1, max_size=3).map(lambda items: f"[{','.join(items)}]")
    keys = st.lists(st.tuples(st.sampled_from("abc"), spaced), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return lists | keys.map(lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}")


BARE = st.text("axy1.:/", min_size=1, max_size=4).filter(lambda text: not text.startswith(":") and not text.endswith(":"))
ESCAPED = st.lists(st.sampled_from(["x", "y", *(f"\\{sign}" for sign in ",()[]{}:= ")]), min_size=1, max_size=4).map("".join)
QUOTED = st.text("axy ,[({:=", max_size=4).map(lambda text: f"'{text}'")
VALUES = st.recursive(BARE | ESCAPED | QUOTED, written, max_leaves=5)


@given(value=VALUES, more=st.none() | VALUES)
@settings(max_examples=60)
def test_other_letters_mean_what_ascii_ones_do(value: str, more: str | None) -> None:
    """What Hydra reads with x and y for letters, it reads with é and ü for them."""
    word = f"k={value}" if more is None else f"k={value},{more}"
    try:
        plain = read(word)
    except HydraException:
        return  # of no value
    assert with_quotes(word) == word
    assert read(with_quotes(word.translate(str.maketrans("xy", "éü")))) == with_letters(plain, "éü")


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("k=é", "k='é'"),
        ("k= é\t", "k='é'"),
        ("k=a,é", "k=a,'é'"),
        ("k= é\\ ", "k='é '"),
        ("k=\\ é \t", "k=' é'"),
        ("k=é\\\\ ", "k='é\\\\'"),
        ("k=é\nb\n ", "k='é\nb\n'"),
        ("k=[é,[a,{b:é,c:[é]}],é]", "k=['é',[a,{b:'é',c:['é']}],'é']"),
        ("k={é:é}", "k={é:'é'}"),
        ("k={a:{é:é},é:é}", "k={a:{é:'é'},é:'é'}"),
        ("k=[{é:a},é]", "k=[{é:a},'é']"),
        ("k={a:[é,é]}", "k={a:['é','é']}"),
        ("k={a:é:é}", "k={a:'é:é'}"),
        ("k=é:é", "k='é:é'"),
        ("k=choice(é,b)", "k=choice('é',b)"),
        ("k=f(n=é)", "k=f(n='é')"),
        ("k=é\\,b", "k='é,b'"),
        ("k=é\\\\", "k='é\\\\'"),
        ("k=é'", "k='é\\''"),
        ("k=é${a,b}é", "k='é${a,b}é'"),
        ("k='é,é',é", "k='é,é','é'"),
        ('k="é",é', "k=\"é\",'é'"),
        ("k=)é,é", "k=)'é','é'"),
        ("k=]}é", "k=]}'é'"),
        ("k=(}é)", "k=(}'é')"),
        ("k={a:b},é", "k={a:b},'é'"),
        ("k={a:[b],é:é}", "k={a:[b],é:'é'}"),
        ("k={a:[b,{é:1}],é:é}", "k={a:[b,{é:1}],é:'é'}"),
        ("k=é=é", "k='é'='é'"),
        ("k=a", "k=a"),
        ("é=a", "é=a"),
        ("k=", "k="),
    ],
)
def test_quotes(word: str, quoted: str) -> None:
    assert with_quotes(word) == quoted


@pytest.mark.parametrize(
    ("argv", "options", "overrides"),
    [
        (["a=1", "-h", "b=2"], {"help": True}, ["a=1", "b=2"]),
        (["--help"], {"help": True}, []),
        (["--hydra-help"], {"hydra_help": True}, []),
        (["--version"], {"version": True}, []),
        (["-r"], {"run": True}, []),
        (["--run"], {"run": True}, []),
        (["-m"], {"multirun": True}, []),
        (["--multirun", "a=1"], {"multirun": True}, ["a=1"]),
        (["-sc"], {"shell_completion": True}, []),
        (["--shell-completion"], {"shell_completion": True}, []),
        (["-p", "x"], {"package": "x"}, []),
        (["a=1", "--package=x", "b=2"], {"package": "x"}, ["a=1", "b=2"]),
        (["-cn", "config"], {"config_name": "config"}, []),
        (["--config-name", "config.yaml"], {"config_name": "config.yaml"}, []),
        (["-cp", "conf"], {"config_path": "conf"}, []),
        (["-cd", "/"], {"config_dir": "/", "names_folder": "/"}, []),
        (["-c", "job"], {"cfg": "job"}, []),
        (["--cfg", "hydra", "--resolve"], {"cfg": "hydra", "resolve": True}, []),
        (["--cfg=all"], {"cfg": "all"}, []),
        (["--help", "--resolve"], {"help": True, "resolve": True}, []),
        (["-i"], {"info": "all"}, []),
        (["a=1", "--info"], {"info": "all"}, ["a=1"]),
        (["--info", "searchpath"], {"info": "searchpath"}, []),
        (["k=é"], {}, ["k='é'"]),
    ],
)
def test_options_and_overrides(argv: list[str], options: dict[str, Any], overrides: list[str]) -> None:
    found = vars(parsed(argv))
    assert found.pop("overrides") == overrides
    assert {name: value for name, value in found.items() if value} == options


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--nope"], "python run.py: unrecognized arguments: --nope"),
        (["-c", "nope"], "python run.py: argument --cfg/-c: invalid choice"),
        (["--info", "nope"], "python run.py: argument --info/-i: invalid choice"),
        (["--package"], "python run.py: argument --package/-p: expected one argument"),
        (["--config-name="], "--config-name: run.py has one config; given an empty word; allowed: config; bring choices of your own"),
        (["-cp", "x"], "--config-path: run.py has one config; given x; allowed: conf; bring choices of your own with --config-dir DIR"),
        (["--experimental-rerun", ""], "--experimental-rerun: a pickle is not loaded; use resume=RUN_FOLDER"),
        (["--resolve"], "--resolve: it goes with --cfg; python run.py --cfg job --resolve"),
        (["--resolve", "--info"], "--resolve: it goes with --cfg"),
        (["-cd", "/nowhere/at/all"], "--config-dir: not a folder; given /nowhere/at/all"),
        (["-cd", ""], "--config-dir: not a folder; given an empty word"),
        (["a=\ud800"], "command line: a word is not UTF-8; given 'a=\\\\ud800'; write it in that encoding"),
        (["a=1", "\udfff"], "command line: a word is not UTF-8; given '\\\\udfff'"),
    ],
)
def test_what_is_no_command_line(argv: list[str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(argv)
    assert str(caught.value).startswith(says.replace("\\\\", "\\"))


def test_letters_beside_those_that_hold_bytes_are_text() -> None:
    assert parsed(["k=a\ud7ff\ue000"]).overrides == ["k='a\ud7ff\ue000'"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["b=2", "-m", "a=1"], ["--multirun", "b=2", "a=1"]),
        (
            ["a=1", "-cd", "/", "-i", "config", "-c", "job", "--help"],
            ["--help", "--cfg", "job", "--info", "config", "--config-dir", "/", "a=1"],
        ),
        (
            ["-p", "x", "-cn", "config", "-cp", "conf", "-r", "-sc"],
            ["--run", "--shell-completion", "--package", "x", "--config-path", "conf", "--config-name", "config"],
        ),
        ([], []),
    ],
)
def test_options_come_first(argv: list[str], words: list[str]) -> None:
    assert ordered(parsed(argv)) == words


def test_a_conf_folder_here_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert conf_here() is None
    (tmp_path / "conf").mkdir()
    for name in ("nginx", "config.yaml"):
        (tmp_path / "conf" / name).mkdir()
        assert conf_here() is None
    (tmp_path / "conf" / "model").write_text("a file")
    assert conf_here() is None
    (tmp_path / "conf" / "data").mkdir()
    assert conf_here() == "conf" == parsed(["a=1"]).config_dir
    assert parsed(["a=1"]).names_folder is None
    for word in ("hydra.searchpath=[x]", "+hydra.searchpath=[x]", "++hydra.searchpath=[x]"):
        assert parsed(["a=1", word]).config_dir is None
    assert parsed(["hydra.searchpaths=[x]"]).config_dir == "conf" and parsed(["-cd", "/"]).config_dir == "/"
    monkeypatch.chdir(CONF.parent)
    assert conf_here() is None  # which is ours


def test_every_choice_is_a_file(tmp_path: Path) -> None:
    check_choices(tmp_path)
    (tmp_path / "model" / "inner").mkdir(parents=True)
    (tmp_path / "model" / "inner" / "a.yaml").write_text("x: 1\n")
    (tmp_path / "other" / "b.yaml").mkdir(parents=True)
    (tmp_path / "model" / "c.yml").mkdir()
    check_choices(tmp_path)
    (tmp_path / "model" / "inner" / "d.yaml").mkdir()
    with pytest.raises(UserError, match=r"model/inner/d.yaml: not a file that can be read; given a folder; take it away"):
        check_choices(tmp_path)
