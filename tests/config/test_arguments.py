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
from recsys_lab.config.arguments import as_hydra_names, conf_here, parsed, with_quotes
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
        ("k=é=é", "k='é=é'"),
        ("k=a/step=48", "k='a/step=48'"),
        ("k=a=1,b", "k='a=1',b"),
        ("k=[a=1,{b:c=2}]", "k=['a=1',{b:'c=2'}]"),
        ("k='a=1'", "k='a=1'"),
        ("k=a\\=1", "k=a\\=1"),
        ("k=sort(2,1,reverse=true)", "k=sort(2,1,reverse=true)"),
        ("k=a", "k=a"),
        ("é=a", "é=a"),
        ("k=", "k="),
    ],
)
def test_quotes(word: str, quoted: str) -> None:
    assert with_quotes(word) == quoted


@pytest.mark.parametrize(
    ("argv", "options", "overrides", "asks"),
    [
        (["a=1", "-h", "b=2"], ("--help",), ("a=1", "b=2"), True),
        (["--hydra-help"], ("--hydra-help",), (), True),
        (["--version"], ("--version",), (), True),
        (["-r"], ("--run",), (), False),
        (["b=2", "-m", "a=1"], ("--multirun",), ("b=2", "a=1"), False),
        (["-sc"], ("--shell-completion",), (), True),
        (["a=1", "--package=x", "-c", "job"], ("--cfg", "job", "--package", "x"), ("a=1",), True),
        (["-cn", "config", "-cp", "conf"], (), (), False),
        (["--cfg", "hydra", "--resolve"], ("--resolve", "--cfg", "hydra"), (), True),
        (["a=1", "--info"], ("--info", "all"), ("a=1",), True),
        (["--info", "searchpath"], ("--info", "searchpath"), (), True),
        (["k=é"], (), ("k='é'",), False),
    ],
)
def test_options_and_overrides(argv: list[str], options: tuple[str, ...], overrides: tuple[str, ...], asks: bool) -> None:
    line = parsed(argv)
    assert (line.options, line.overrides, line.asks_hydra) == (options, overrides, asks)
    assert line.multirun == ("-m" in argv) and line.shows_config == bool({"-c", "--cfg"} & set(argv))


@pytest.mark.parametrize(
    ("argv", "where"),
    [
        (["--nope"], "python run.py"),
        (["-c", "nope"], "python run.py"),
        (["--info", "nope"], "python run.py"),
        (["--package"], "python run.py"),
        (["--config-name="], "--config-name"),
        (["-cp", "x"], "--config-path"),
        (["--experimental-rerun", ""], "--experimental-rerun"),
        (["--resolve"], "--resolve"),
        (["--resolve", "--info"], "--resolve"),
        (["-cd", "/nowhere/at/all"], "--config-dir"),
        (["-cd", ""], "--config-dir"),
        (["a=\ud800"], "command line"),
        (["a=1", "\udfff"], "command line"),
    ],
)
def test_what_is_no_command_line(argv: list[str], where: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(argv)
    assert caught.value.parts["where"] == where and "\n" not in str(caught.value)


def test_letters_beside_those_that_hold_bytes_are_text() -> None:
    assert parsed(["k=a\ud7ff\ue000"]).overrides == ("k='a\ud7ff\ue000'",)


def test_the_place_of_a_part_need_not_be_named_twice() -> None:
    assert as_hydra_names("cluster/device@cluster.device=l4") == "cluster/device=l4"
    for word in ("cluster/link@cluster.cross_host=xdr", "+cluster/disk@cluster.other=nvme4_x4"):
        assert as_hydra_names(word) == word
    assert as_hydra_names("~cluster/disk@cluster.disk") == "~cluster/disk"


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
