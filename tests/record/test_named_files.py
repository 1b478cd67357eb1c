"""Files that a user names: what cannot be read or written is said in one line, before any work, and nothing is opened that would hang."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from recsys_lab.base.files import out_file as of_kind
from recsys_lab.base.files import out_folder, path_of, read_json, read_text, write_text
from recsys_lab.errors import UserError

#: Without a suffix or with one.
out_file = partial(of_kind, suffixes=("", ".json"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "--out: no name of a file or a folder; given an empty word"),
        ("  ", "--out: no name of a file or a folder"),
        ("~nosuchuser/x", "--out: could not determine home directory.; given ~nosuchuser/x"),
        ("a\nb", "--out: the name is not UTF-8, or has control characters in it"),
        ("a\udcff", "--out: the name is not UTF-8"),
        ("a\0b", "--out: the name is not UTF-8"),
    ],
)
def test_what_is_no_name(text: str, says: str) -> None:
    for reads in (path_of, out_file, out_folder):
        with pytest.raises(UserError, match=f"^{re.escape(says)}"):
            reads(text, "--out")


def test_a_name_of_ones_own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/of/me")
    assert path_of("~/x é", "--out") == Path("/of/me/x é")


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "given a folder"),
    "a pipe": (os.mkfifo, "given a named pipe"),
    "a link to nothing": (lambda path: path.symlink_to("/nope/nothing"), "given a link to nothing"),
    "a link to itself": (lambda path: path.symlink_to(path), "given too many levels of symbolic links"),
    "a device": (lambda path: path.symlink_to("/dev/full"), "given a device"),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_stands_where_a_file_is_to_be_written_or_read(tmp_path: Path, name: str) -> None:
    make, says = PLACES[name]
    make(tmp_path / "x")
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path / 'x'))}: cannot write; {says}; name another file$"):
        out_file(str(tmp_path / "x"), "--out")
    for reads in (read_text, read_json):
        with pytest.raises(UserError, match=f"x: not a file that can be read; {says}"):
            reads(tmp_path / "x")
    if name != "a folder":
        with pytest.raises(UserError, match="cannot write"):
            out_folder(str(tmp_path / "x"), "--out")


def test_below_a_file_and_names_that_are_too_long(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file/a/b: cannot write: Not a directory"):
        out_file(f"{tmp_path}/file/a/b", "--out")
    with pytest.raises(UserError, match="cannot write; given file name too long"):
        out_file(f"{tmp_path}/{'x' * 300}", "--out")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_name_of_another_kind_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("mine")
    with pytest.raises(UserError, match=r"--page: no file of this kind; given .*clicks\.csv; allowed: a name that ends in \.html"):
        of_kind(str(tmp_path / "clicks.csv"), "--page", (".html",))


def test_a_new_file_in_new_folders_is_not_made_yet(tmp_path: Path) -> None:
    assert out_file(f"{tmp_path}/a/b/c", "--out") == tmp_path / "a/b/c" and out_folder(f"{tmp_path}/a", "--out") == tmp_path / "a"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_missing_says_what_to_do(tmp_path: Path) -> None:
    for name in ("nope", "a\0b"):
        with pytest.raises(UserError, match="no such file; write it first"):
            read_text(tmp_path / name, "write it first")
        with pytest.raises(UserError, match="no such file; write it first"):
            read_json(tmp_path / name, "write it first")


def test_a_file_system_that_makes_no_files() -> None:
    """/proc says that there is no such folder, which is no mistake of ours."""
    for asks in (out_file, out_folder):
        with pytest.raises(UserError, match="/proc/x.*: cannot write: (No such file|Operation not supported)"):
            asks("/proc/x", "--out")
    with pytest.raises(UserError, match="/proc/.*: cannot write: No such file or directory"):
        write_text(Path("/proc/x"), "text")
