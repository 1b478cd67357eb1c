"""Every command on a page runs: all of them in the long suite, small; each that does not is listed with its reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.reliability.caches import with_kernels
from recsys_lab.__main__ import COMMANDS
from tests.docs.pages import IN_ORDER, NOT_RUN, PAGES, ROOT, Shown, shown, small

ALL = [command for page in PAGES for command in shown(page)]
ALONE = [command for command in ALL if command.page not in IN_ORDER and command.reason_not_run is None]
DATA = Path(os.environ["RECSYS_LAB_DATA"]) if os.environ.get("RECSYS_LAB_DATA") else None


def run(words: list[str], cache: Path, timeout_s: float = 800) -> subprocess.CompletedProcess[str]:
    """Runs `words` from the checkout, `python` being this one."""
    words = [sys.executable if word == "python" else word for word in words]
    environment = os.environ | {"XDG_CACHE_HOME": str(with_kernels(cache))}
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Path, Path]:
    """A small run and a small sweep, for the commands that look at one."""
    made = tmp_path_factory.mktemp("made")
    words = ["python", "run.py", "mode=simulate", "model=dlrm", "cluster=h100x8", "logger=none"]
    assert run([*words, f"hydra.run.dir={made / 'run'}"], cache).returncode == 0
    line = ["python", "run.py", "-m", *words[2:], "sharder=torchrec,torchrec_row_wise", f"hydra.sweep.dir={made / 'sweep'}"]
    assert run(line, cache).returncode == 0
    return made / "run", made / "sweep"


def test_pages_show_commands_and_none_is_left_out_without_a_reason() -> None:
    assert len(ALL) > 40 and len(ALONE) > 25
    for command in ALL:
        runs = command.words[0] in ("python", "make", "export", "mkdir") or command.page in IN_ORDER
        assert runs or command.reason_not_run, f"{command}: a test must learn to run {command.text}"
    unused = [key for key in NOT_RUN if not any(c.page == key[0] and c.text.startswith(key[1]) for c in ALL)]
    assert not unused, f"no page shows these any more: {unused}"


@pytest.mark.parametrize("command", [c for c in ALL if c.words[:3] == ["python", "-m", "recsys_lab"]], ids=str)
def test_a_command_of_ours_is_one_that_there_is(command: Shown) -> None:
    assert command.words[3] in COMMANDS or command.words[3] == "--help"


def test_help_is_printed(cache: Path) -> None:
    helped = run(["python", "run.py", "--help"], cache)
    assert helped.returncode == 0 and "python run.py model=dcn sharder=torchrec cluster=h100x64" in helped.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", ALONE, ids=str)
def test_a_command_runs(command: Shown, tmp_path: Path, cache: Path, folders: tuple[Path, Path]) -> None:
    words = small(command, tmp_path / "out", DATA, *folders)
    if words is None:
        pytest.skip("its data set is not here: set RECSYS_LAB_DATA")
    done = run(words, cache)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr[-2000:]}"
    if command.prints_the_same:
        assert _missing(command.parts, done.stdout) is None


def _missing(parts: list[str], printed: str) -> str | None:
    """The first of `parts` that `printed` does not have behind those before it."""
    rest = " ".join(printed.split())
    for part in parts:
        before, found, rest = rest.partition(part)
        if not found:
            return f"{part!r} is not in {before!r}"
    return None


def test_an_output_is_looked_for_piece_by_piece() -> None:
    printed = "  plan  a: 1 host\n  simulated  2.40 ms (compute 1.00, other 0.10 ms)\n"
    assert _missing(["plan a: 1 host simulated 2.40 ms (compute 1.00,", "ms)"], printed) is None
    assert _missing(["simulated 2.40 ms", "plan a"], printed) is not None and _missing(["2.41 ms"], printed) is not None


def test_outputs_that_every_call_prints_are_found_on_the_pages() -> None:
    shown_outputs = [command for command in ALONE if command.prints_the_same and command.output]
    assert {"README.md", "docs/decide.md", "docs/examples.md"} <= {command.page for command in shown_outputs}
    assert len(shown_outputs) >= 9 and all(command.parts for command in shown_outputs)


def test_an_output_stands_on_one_page() -> None:
    """Others link to it. README, which many read alone, may show a part of it."""
    pages: dict[frozenset[str], set[str]] = {}
    for command in ALL:
        if command.output and command.page != "README.md":
            pages.setdefault(frozenset(command.words) - {"logger=none"}, set()).add(command.page)
    assert len(pages) > 15
    assert {" ".join(sorted(words)): sorted(where) for words, where in pages.items() if len(where) > 1} == {}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", IN_ORDER)
def test_a_page_runs_from_its_first_command_to_its_last(page: str, tmp_path: Path) -> None:
    """As a reader would, in a folder of his own: files are written where the sentence before them says."""
    text = (ROOT / page).read_text(encoding="utf-8")
    study = tmp_path / "my_study"
    home = os.environ | {"HOME": str(tmp_path), "STUDY": str(study), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (study / "conf" / "data").mkdir(parents=True)
    (study / "data").mkdir()
    blocks = dict(re.findall(r"```(python|yaml)\n(.*?)```", text, re.DOTALL))
    (study / "make_clicks.py").write_text(blocks["python"])
    (study / "conf" / "data" / "shop.yaml").write_text(blocks["yaml"])
    assert "`$STUDY/make_clicks.py`" in text and "`$STUDY/conf/data/shop.yaml`" in text
    for command in shown(ROOT / page):
        done = subprocess.run(["bash", "-c", command.text], cwd=ROOT, env=home, capture_output=True, text=True, check=False)
        if command.expected.startswith("error: "):
            assert done.returncode == 2 and command.expected.split("...")[-1] in done.stderr, done.stderr
        else:
            assert done.returncode == 0, f"{command.text}\n{done.stderr[-2000:]}"
            assert _missing(command.parts, done.stdout) is None  # its seeds are given, and what is measured is left out
    assert (study / "first" / "report.html").is_file() and "torchrec_row_wise" in (study / "sweep" / "ablation.md").read_text()
