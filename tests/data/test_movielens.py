"""MovieLens: every release's ratings give the same histories, whatever lies beside them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from recsys_lab.data.movielens import open_movielens
from recsys_lab.errors import UserError
from tests.data.helpers import write

CONF = Path(__file__).resolve().parents[2] / "conf" / "data" / "movielens.yaml"
#: user, movie, rating, time: user 1 sees 10, 20, 30, 40, user 2 sees 30, 10, 50.
LOG = [(1, 30, 4, 300), (1, 10, 5, 100), (2, 10, 3, 60), (1, 20, 1, 200), (2, 30, 2, 50), (1, 40, 4, 400), (2, 50, 5, 70)]


def options(root: Path, **changed) -> dict:
    loader = ("_target_", "batch_size", "prefetch_batches", "frequencies")
    plain = {key: value for key, value in yaml.safe_load(CONF.read_text()).items() if key not in loader}
    return plain | {"root": str(root), "objective": "next_item", "cache": str(root / "cache")} | changed


def release(folder: Path, name: str) -> Path:
    if name.startswith("ratings.dat"):
        write(folder / name, ["::".join(map(str, line)) for line in LOG])
        (folder / "movies.dat").write_bytes("10::Caf\xe9 (1995)::Drama\n".encode("latin-1"))
    elif name.startswith("ratings.csv"):
        write(folder / name, ["userId,movieId,rating,timestamp", *(f"{u},{m},{r}.0,{t}" for u, m, r, t in LOG)])
        write(folder / "movies.csv", ["movieId,title,genres", "10,A,Drama"])
        write(folder / "tags.csv", ["userId,movieId,tag,timestamp", "1,10,fine,1"])
    else:
        write(folder / name, ["\t".join(map(str, line)) for line in LOG])
        write(folder / "u.item", ["10|A|01-Jan-1995||http|0"])
    return folder


@pytest.mark.parametrize("name", ["ratings.dat", "ratings.dat.gz", "ratings.csv", "u.data"])
def test_every_release_gives_the_histories_in_the_order_of_time(tmp_path: Path, name: str) -> None:
    data = open_movielens(**options(release(tmp_path, name)))
    assert {feature.table_name for feature in data.features} == {"item"} and data.features[0].rows == 6
    seen = data.held_out["test"].seen(np.array([0, 1]))
    assert seen[0].tolist() == [3, 2]
    held_out = data.held_out["test"].target(np.array([0, 1])), data.held_out["validation"].target(np.array([0, 1]))
    assert len({*seen[1].tolist(), *held_out[0].tolist()}) == 5  # 10 and 30 twice, 20, and the two that are held out
    assert held_out[1].tolist() == [seen[1][2], seen[1][4]]


def test_a_folder_without_ratings_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "movies.csv", ["movieId,title,genres"])
    with pytest.raises(UserError, match=r"no ratings file; given a folder with movies.csv; allowed: ratings.dat\[.gz\], ratings.csv"):
        open_movielens(**options(tmp_path))


@pytest.mark.skipif(not os.environ.get("RECSYS_LAB_DATA"), reason="RECSYS_LAB_DATA names no data sets")
def test_the_real_100k(tmp_path: Path) -> None:
    root = Path(os.environ["RECSYS_LAB_DATA"]) / "ml-100k"
    data = open_movielens(**options(root, cache=str(tmp_path)))
    assert data.features[0].rows == 1683 and data.held_out["test"].rows == 943
