"""A trained model leaves: the folder of `export` scores raw rows, with torch and safetensors alone, as the run itself does."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.export.export import export_run
from tests.end_to_end.lines import Done, line, result

#: What a bare environment has: torch, safetensors and what torch imports. No numpy, and nothing of ours.
BARE = ("torch", "torchgen", "functorch", "safetensors", "typing_extensions.py", "sympy", "mpmath", "filelock", "jinja2", "markupsafe")
BARE += ("networkx", "fsspec")
HEAD = ["clicked", "user", "item id", "day", "price", "stock", "flag"]
ROWS, TEST = 1500, 150
SHORT = ("logger=none", "baselines=false")


def export(*words: object, cache: Path) -> Done:
    return line("export", *map(str, words), cache=cache, program=("-m", "recsys_lab"))


def odd_rows() -> list[list[str]]:
    """Clicks with dates, numbers of any size, rare, missing and oddly written values."""
    draw = random.Random(1)
    rows = []
    for number in range(ROWS):
        user, item, price = draw.randrange(60), min(int(draw.paretovariate(0.8)), 39), round(draw.lognormvariate(2, 0.6), 2)
        click = draw.random() < 1 / (1 + math.exp(0.5 * math.log(price) - math.sin(user) * 2))
        name = draw.choice([f"u{user}", f" u{user}", "", "nan", f"only {number}"]) if draw.random() < 0.3 else f"u{user}"
        day = f"2024-{1 + number // 150:02d}-{1 + draw.randrange(28):02d}"
        numbers = ["" if draw.random() < 0.1 else str(price), draw.choice(["1e6", "2.5", "-3", ".5", "NaN"])]
        rows.append(
            [str(int(click)), name, draw.choice([f"{item}.0", str(item)]), day, *numbers, draw.choice(["True", "false", "TRUE", ""])]
        )
    return rows


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in [HEAD, *rows])


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages, all that a bare environment has."""
    folder, installed = tmp_path_factory.mktemp("bare"), Path(torch.__file__).parents[1]
    for name in BARE:
        (folder / name).symlink_to(installed / name)
    return folder


def served(export: Path, text: str, bare: Path) -> subprocess.CompletedProcess[str]:
    """`python serve.py < text`, where nothing but `bare` and Python's own can be imported."""
    start = (
        f"import runpy, sys; sys.path[:0] = [{str(export)!r}, {str(bare)!r}]; sys.argv = ['serve.py']; "
        f"runpy.run_path({str(export / 'serve.py')!r}, run_name='__main__'); "
        "assert not {'numpy', 'polars', 'recsys_lab', 'torchrec', 'lightning', 'hydra'} & set(sys.modules)"
    )
    words = [sys.executable, "-I", "-S", "-W", "ignore", "-c", start]
    return subprocess.run(words, input=text, cwd=export, capture_output=True, text=True, timeout=200, check=False)


def scores(export: Path, text: str, bare: Path) -> list:
    done = served(export, text, bare)
    assert done.returncode == 0, done.stderr
    return [json.loads(one) for one in done.stdout.splitlines()]


def module_of(export: Path) -> Any:
    """Its serve.py, in this process."""
    sys.path.insert(0, str(export))
    try:
        spec = importlib.util.spec_from_file_location("serve", export / "serve.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(export))


@pytest.fixture(scope="module")
def clicks(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of DMT on 2 x 2 ranks on such rows. `predictions.parquet`: what it says of its test split."""
    folder = tmp_path_factory.mktemp("clicks")
    (folder / "data").mkdir()
    (folder / "data" / "clicks.csv").write_text(as_csv(odd_rows()))
    words = ("data=table", f"data.root={folder / 'data'}", "data.label=clicked", "data.dense_scale=log", "sharder=dmt")
    ranks = ("launcher.hosts=2", "launcher.ranks_per_host=2", "trainer.max_epochs=3", "data.batch_size=128", "optimizer.dense.lr=0.005")
    done = line(*words, *ranks, *SHORT, f"hydra.run.dir={folder / 'run'}", cache=cache)
    assert done.code == 0, done.err
    predictions = f"predictions={folder / 'predictions.parquet'}"
    done = line(f"start_from={folder / 'run'}", "mode=evaluate", predictions, f"hydra.run.dir={folder / 'evaluated'}", cache=cache)
    assert done.code == 0, done.err
    return folder


def probabilities(run: Path) -> list[float]:
    return pl.read_parquet(run / "predictions.parquet")["probability"].to_list()


@pytest.fixture(scope="module")
def exported(clicks: Path, cache: Path) -> tuple[Path, Done]:
    done = export(clicks / "run", "--out", clicks / "export", cache=cache)
    assert done.code == 0, done.err
    return clicks / "export", done


def test_raw_rows_have_the_probabilities_of_the_run(clicks: Path, exported: tuple[Path, Done], bare: Path) -> None:
    folder, done = exported
    expected, test = probabilities(clicks), odd_rows()[-TEST:]
    of_csv = scores(folder, as_csv(test), bare)
    assert max(abs(a - b) for a, b in zip(of_csv, expected, strict=True)) < 1e-6 and max(expected) - min(expected) > 0.05
    as_json = [dict(zip(HEAD, row)) for row in test]
    typed = [row | {"price": float(row["price"]) if row["price"] else None, "item id": int(float(row["item id"]))} for row in as_json]
    assert module_of(folder).Model(folder).score(typed) == of_csv
    assert "as trained" in done.out and "+0.000000" in done.out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (as_csv([odd_rows()[-1], [*odd_rows()[-1][:4], "dear", *odd_rows()[-1][5:]]]), "dear"),
        (as_csv([odd_rows()[-1], odd_rows()[-1][:3]]), "3 fields, 7 in the header"),
        (json.dumps({"user": "u1"}) + "\n", "has no column 'price'"),
        (json.dumps(dict(zip(HEAD, odd_rows()[-1])) | {"user": ["u1", "u2"]}) + "\n", "user is one value"),
    ],
    ids=["no number", "short", "no column", "a list"],
)
def test_a_row_that_training_would_refuse_is_refused(
    text: str, says: str, exported: tuple[Path, Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = module_of(exported[0])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises(SystemExit) as ended:
        serve.main(exported[0])
    assert says in str(ended.value) and str(ended.value).startswith("error: ")


def test_the_folder_tells_of_itself_and_is_never_written_over(exported: tuple[Path, Done], clicks: Path, cache: Path) -> None:
    card = (exported[0] / "README.md").read_text()
    assert all(word in card for word in ("dcn on table", "| test |", "dmt places 4 tables", "commit ", "`item id`"))
    done = export(clicks / "run", "--out", exported[0], cache=cache)
    assert done.code == 2 and "not empty" in done.err and done.err.count("\n") == 1
    with pytest.raises(UserError):
        export_run(clicks / "data", clicks / "none")
    assert not (clicks / "none").exists() and not list(clicks.glob(".partial*"))
    assert not list(exported[0].rglob("*.sum"))


@pytest.mark.parametrize(("tables", "largest"), [("bf16", 2**-8), ("fp16", 2**-11), ("int8", 1 / 255)])
def test_smaller_numbers_cost_what_is_printed(
    tables: str, largest: float, clicks: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    figures = export_run(clicks / "run", tmp_path / "export", tables)
    assert 0 < figures.largest_error <= largest * figures.greatest_weight
    assert figures.auc.before is not None and figures.auc.after is not None and abs(figures.auc.before - figures.auc.after) < 0.01
    scored = module_of(tmp_path / "export").Model(tmp_path / "export").score([dict(zip(HEAD, row)) for row in odd_rows()[-TEST:]])
    differences = [abs(a - b) for a, b in zip(scored, probabilities(clicks), strict=True)]
    assert 0 < max(differences) < 0.01


@pytest.mark.long
def test_an_export_is_started_from_as_its_run_is(
    clicks: Path, exported: tuple[Path, Done], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own weights to the bit; of int8 what serve.py reads. A file that was changed is refused."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    (tmp_path / "new.csv").write_text(as_csv(odd_rows()[-TEST:]))
    export_run(clicks / "run", tmp_path / "int8", "int8")
    for number, folder in enumerate((exported[0], tmp_path / "int8")):
        file = tmp_path / f"{number}.parquet"
        new = (f"data.splits.test={tmp_path / 'new.csv'}", "mode=predict", f"predictions={file}", f"hydra.run.dir={tmp_path / str(number)}")
        done = line(f"start_from={folder}", *new, cache=cache)
        assert done.code == 0, done.err
        scored = module_of(folder).Model(folder).score([dict(zip(HEAD, row)) for row in odd_rows()[-TEST:]])
        assert max(abs(a - b) for a, b in zip(pl.read_parquet(file)["probability"], scored, strict=True)) < 1e-6
        assert ("tables in fp32", "tables in int8")[number] in result(tmp_path / str(number))["started_from"]["folder"]
    part = tmp_path / "int8" / "dense.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    done = line(f"start_from={tmp_path / 'int8'}", *new[:-1], f"hydra.run.dir={tmp_path / 'refused'}", cache=cache)
    assert done.code == 2 and "dense.safetensors is not what was written" in done.err


@pytest.fixture(scope="module")
def histories(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of FlexShard on 2 x 2 ranks on histories of items, with what it ranks first for each user of the test split."""
    folder, draw = tmp_path_factory.mktemp("histories"), random.Random(2)
    (folder / "data").mkdir()
    users = {f"user{number}": draw.randrange(20) for number in range(80)}
    texts = {
        user: [f"B{(base + place * 3 + draw.randrange(2)) % 30:03d}" for place in range(draw.randrange(2, 14))]
        for user, base in users.items()
    }
    log = [f"{user},{item},{number}" for user, items in texts.items() for number, item in enumerate(items)]
    (folder / "data" / "log.csv").write_text("\n".join(["user_id,item_id,timestamp", *log]) + "\n")
    words = (
        "model=sequence",
        "sharder=flexshard_3tier",
        "data=interactions",
        f"data.root={folder / 'data'}",
        "data.max_length=8",
        "model.loss=softmax",
        "model.temperature=0.1",
    )
    ranks = ("launcher.hosts=2", "launcher.ranks_per_host=2", "data.batch_size=32", "trainer.max_epochs=4", *SHORT)
    done = line(*words, *ranks, f"hydra.run.dir={folder / 'run'}", cache=cache)
    assert done.code == 0, done.err
    predictions = (f"predictions={folder / 'predictions.parquet'}", f"hydra.run.dir={folder / 'evaluated'}")
    done = line(f"start_from={folder / 'run'}", "mode=evaluate", "launcher.hosts=1", *predictions, cache=cache)
    assert done.code == 0, done.err
    before = [{"item": items[:-1]} for _, items in sorted(texts.items()) if len(items) >= 3]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in before))
    return folder


@pytest.mark.long
def test_raw_histories_have_the_items_and_probabilities_of_the_run(histories: Path, cache: Path, bare: Path) -> None:
    done = export(histories / "run", "--out", histories / "export", cache=cache)
    assert done.code == 0, done.err
    rows = (histories / "test.jsonl").read_text()
    ranked = scores(histories / "export", rows, bare)
    expected = pl.read_parquet(histories / "predictions.parquet").partition_by("row", maintain_order=True)
    assert len(ranked) == len(expected) > 50
    for own, theirs in zip(ranked, expected):
        assert [item for item, _ in own] == theirs["item"].to_list()
        assert max(abs(p - q) for (_, p), q in zip(own, theirs["probability"])) < 1e-6
    history = json.loads(rows.splitlines()[0])["item"]
    assert not {item for item, _ in ranked[0]} & set(history)
    model = module_of(histories / "export").Model(histories / "export")
    unknown, joined = model.score([{"item": ["never seen", *history]}, {"item": " ".join(history)}])
    assert unknown == joined and [item for item, _ in joined] == [item for item, _ in ranked[0]]
