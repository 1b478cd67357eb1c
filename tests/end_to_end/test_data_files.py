"""Bad data files through the whole command line: one line, exit code 2, no run folder and nothing half-written in the cache."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.lines import line

ROWS = "\n".join(["label,price,user", *(f"{i % 2},{i}.5,u{i % 9}" for i in range(400))]).encode()
FILES: dict[bytes, tuple[Callable[[bytes], bytes], str]] = {
    b"clicks.csv.gz": (lambda data: gzip.compress(data)[:-200], "clicks.csv.gz: the .gz file is truncated or corrupt"),
    b"clicks.csv": (lambda data: data.replace(b"7.5,", b"1e300,", 1), "clicks.csv, row 8: price is no number that 32 bits can hold"),
    b"caf\xe9.csv": (lambda data: data, "the name is not UTF-8, or has control characters in it"),
    b"utf16.csv": (lambda data: data.decode().encode("utf-16"), "utf16.csv:1: not UTF-8 text; given UTF-16"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_data_file_is_one_line_and_exit_code_2(tmp_path: Path, name: bytes) -> None:
    change, said = FILES[name]
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    Path(os.fsdecode(os.fsencode(data) + b"/" + name)).write_bytes(change(ROWS))
    done = line("data=table", f"data.root={data}", f"hydra.run.dir={tmp_path / 'run'}", "mode=plan", "logger=none", cache=cache)
    assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    assert said in done.err, done.err
    assert not (tmp_path / "run").exists()
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock" and "kernels" not in path.parts]
