"""Side columns from the command line: they teach what items cannot, and go through predictions, a resumed run and an export."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

from tests.end_to_end.lines import line, result
from tests.end_to_end.test_export import module_of

MOODS, EACH, USERS, LENGTH = 8, 10, 400, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in which the mood of an event says of which ten items the next one is, and nothing else does. Items and users have files."""
    folder, draw, lines = tmp_path_factory.mktemp("moods"), random.Random(1), []
    for user in range(USERS):
        item = draw.randrange(MOODS * EACH)
        for time in range(LENGTH):
            mood = draw.randrange(MOODS)
            lines.append(f"u{user},i{item},{10**9 + time},m{mood}|m{mood},{draw.gammavariate(2, 3):.3f}")
            item = mood * EACH + draw.randrange(EACH)
    (folder / "log.csv").write_text("\n".join(["user_id,item_id,timestamp,mood,price", *lines]) + "\n")
    (folder / "users.tsv").write_text("\n".join(["user_id\tage", *(f"u{user}\t{user % 5}" for user in range(USERS))]) + "\n")
    kinds = [f"i{item}\t{'' if item % 7 == 0 else f'k{item % 3};k{item % 2};odd'}" for item in range(MOODS * EACH - 5)]
    (folder / "items.tsv").write_text("\n".join(["item_id\tkind", *kinds]) + "\n")
    return folder


def words(root: Path) -> tuple[str, ...]:
    model = ("model=hstu", "model.loss=softmax", "model.temperature=0.1", "model.dropout=0", "model.embedding_dim=32")
    trainer = ("data.batch_size=64", "optimizer.dense.lr=0.003", "optimizer.sparse.lr=0.05", "logger=none", "baselines=false")
    ranks = ("launcher.hosts=1", "launcher.ranks_per_host=2", "trainer.evaluate_train_rows=0")
    return (*model, "sharder=flexshard_2tier", "data=interactions", f"data.root={root}", "data.max_length=8", *trainer, *ranks)


SIDES = ("data.side=[mood,age,kind,price]", "data.lists={mood: '|', kind: ';'}", "data.users_file=users.tsv", "data.items_file=items.tsv")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_side_column_that_decides_the_next_item(root: Path, tmp_path: Path, cache: Path) -> None:
    own = words(root)
    plain = ("data.file=log.csv", "trainer.max_epochs=12")
    done = line(*own, *plain, f"hydra.run.dir={tmp_path / 'plain'}", cache=cache)
    assert done.code == 0, done.err
    done = line(*own, *SIDES, "trainer.max_epochs=12", f"hydra.run.dir={tmp_path / 'sides'}", cache=cache)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "side columns: mood (of each event: 8 values, 2.0 each, averaged), price (of each event: numbers, 32 buckets" in said
    assert "kind (of each item: 4 values, " in said and "age (of each user: 5 values)" in said and "5 of 80 items are not in it" in said
    without, having = (result(tmp_path / name)["quality"]["test"] for name in ("plain", "sides"))
    assert having["hit_rate_10"] > 0.7 > 0.4 > without["hit_rate_10"]  # by chance 1 / 8
    again = (f"start_from={tmp_path / 'sides'}", "mode=evaluate", f"predictions={tmp_path / 'next.parquet'}")
    done = line(*again, f"hydra.run.dir={tmp_path / 'again'}", cache=cache)
    assert done.code == 0, done.err
    assert result(tmp_path / "again")["quality"]["test"]["hit_rate_10"] == having["hit_rate_10"]
    expected = pl.read_parquet(tmp_path / "next.parquet").partition_by("row", maintain_order=True)
    done = line("export", str(tmp_path / "sides"), "--out", str(tmp_path / "export"), cache=cache, program=("-m", "recsys_lab"))
    assert done.code == 0, done.err
    log, model = pl.read_csv(root / "log.csv", infer_schema=False), module_of(tmp_path / "export").Model(tmp_path / "export")
    rows = []
    for (user,), own in sorted(log.group_by("user_id", maintain_order=True)):
        before = own.head(LENGTH - 1)
        moods = [cell.split("|") for cell in before["mood"]]
        rows.append({"item": before["item_id"].to_list(), "mood": moods, "price": before["price"].to_list(), "age": int(user[1:]) % 5})
    assert len(rows) == len(expected) == USERS
    for ranked, theirs in zip(model.score(rows), expected):
        assert max(abs(p - q) for (_, p), q in zip(ranked, theirs["probability"])) < 1e-6
        assert [item for item, _ in ranked] == theirs["item"].to_list()
    row = rows[0]
    text = {"item": " ".join(row["item"]), "mood": " ".join("|".join(own) for own in row["mood"]), "price": " ".join(row["price"])}
    odd = [{name: ["never", *own] if isinstance(own, list) else own for name, own in row.items()}, text | {"age": str(row["age"])}]
    assert model.score(odd) == model.score([row, row])
    with pytest.raises(ValueError, match="a mood is needed for each item"):
        model.score([row | {"mood": []}])


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_stopped_run_ends_with_the_same_weights(root: Path, tmp_path: Path, cache: Path) -> None:
    own = (*words(root), *SIDES)
    whole = line(*own, "trainer.max_epochs=2", f"hydra.run.dir={tmp_path / 'whole'}", cache=cache)
    assert whole.code == 0, whole.err
    half = line(*own, "trainer.max_epochs=1", f"hydra.run.dir={tmp_path / 'half'}", cache=cache)
    assert half.code == 0, half.err
    done = line(f"resume={tmp_path / 'half'}", "trainer.max_epochs=2", cache=cache)
    assert done.code == 0, done.err
    assert result(tmp_path / "half")["quality"] == result(tmp_path / "whole")["quality"]
