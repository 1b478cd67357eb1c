"""The tower partitioner: planted groups are found, bounds hold, the same in is the same out, a file says what was put in."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from recsys_lab.errors import UserError
from recsys_lab.sharders.dmt import TowerOptions
from recsys_lab.sharders.dmt.affinity import affinity, coordinates, distances
from recsys_lab.sharders.dmt.names import ABSOLUTES
from recsys_lab.sharders.dmt.partition import SEEDS, balanced_groups, dealt, shares, size_bounds, strided
from recsys_lab.sharders.dmt.partition_file import Partition, adjusted_rand_index, load_partition
from recsys_lab.tables import Table
from tests.simulate.clusters import cluster


def planted(groups: int, size: int, within: float, across: float, noise: float, seed: int) -> tuple[np.ndarray, list[int]]:
    """An affinity [F, F] with the groups' labels, features in a drawn order."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.repeat(np.arange(groups), size))
    clean = np.where(np.equal.outer(label, label), within, across) + noise * rng.standard_normal((len(label), len(label)))
    similarity = np.clip((clean + clean.T) / 2, 0, 1)
    np.fill_diagonal(similarity, 1.0)
    return similarity, label.tolist()


def labels_of(groups: list[list[int]]) -> list[int]:
    label = {item: number for number, group in enumerate(groups) for item in group}
    return [label[item] for item in range(len(label))]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("groups", [4, 8])
def test_planted_groups_are_found_in_the_plane(groups: int, seed: int) -> None:
    similarity, label = planted(groups, 4, within=0.6, across=0.2, noise=0.05, seed=seed)
    points, _ = coordinates(distances(similarity, "coherent"), starts=8)
    assert adjusted_rand_score(label, labels_of(balanced_groups(points, groups))) == 1.0


def test_the_diverse_strategy_keeps_the_alike_apart() -> None:
    """Four pairs of twins in two towers: no tower has both of a pair, and coherent towers have whole pairs."""
    similarity, label = planted(4, 2, within=0.95, across=0.1, noise=0.0, seed=1)
    coherent, diverse = (labels_of(balanced_groups(coordinates(distances(similarity, s), starts=4)[0], 2)) for s in ("coherent", "diverse"))
    twins = [(i, j) for i in range(8) for j in range(i) if label[i] == label[j]]
    assert sum(coherent[i] == coherent[j] for i, j in twins) == 4
    assert sum(diverse[i] == diverse[j] for i, j in twins) < 4


@pytest.mark.parametrize("absolute", ABSOLUTES)
def test_affinity_is_the_mean_cosine_of_the_samples_that_have_both(absolute: str) -> None:
    """Section 3.3: |mean(R R^T, dim=0)| of normalised embeddings R."""
    rng = torch.Generator().manual_seed(0)
    embeddings = torch.randn(50, 5, 7, generator=rng)
    embeddings[:20, 2] = 0  # no look-ups
    expected = np.ones((5, 5))
    for i in range(5):
        for j in range(5):
            both = slice(20, None) if 2 in (i, j) else slice(None)
            x, y = embeddings[both, i].double(), embeddings[both, j].double()
            cosines = torch.nn.functional.cosine_similarity(x, y, dim=1)
            expected[i, j] = cosines.mean().abs() if absolute == "of_mean" else cosines.abs().mean()
    np.testing.assert_allclose(affinity([embeddings[:30], embeddings[30:]], absolute), expected, rtol=1e-9)
    with pytest.raises(UserError, match="no samples"):
        affinity([])


def test_features_whose_sign_changes_have_no_affinity_by_the_paper() -> None:
    """Two features that lie on one line, in the same direction in half of the samples and in opposite ones in the other half."""
    one = torch.tensor([[1.0, 0.0]]).repeat(4, 1)
    other = one * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None]
    pair = [torch.stack([one, other], dim=1)]
    assert affinity(pair)[0, 1] == 0 and affinity(pair, "of_samples")[0, 1] == 1
    opposed = [torch.stack([one, -one], dim=1)]
    assert affinity(opposed)[0, 1] == 1  # "strongly positively or negatively related"


def test_coordinates_keep_the_distances_that_a_plane_can_keep() -> None:
    points = np.random.default_rng(3).standard_normal((9, 2))
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    positions, stress = coordinates(apart, starts=4)
    np.testing.assert_allclose(np.linalg.norm(positions[:, None] - positions[None], axis=2), apart, atol=0.02)
    assert stress < 0.01


def test_the_same_affinity_and_seed_give_the_same_bits() -> None:
    similarity, _ = planted(4, 4, within=0.4, across=0.2, noise=0.1, seed=5)
    once, again = (coordinates(distances(similarity, "coherent"), seed=2, starts=4) for _ in range(2))
    assert once[0].tobytes() == again[0].tobytes() and once[1] == again[1]
    assert balanced_groups(once[0], 4, 2.0, seed=2) == balanced_groups(again[0], 4, 2.0, seed=2)


@settings(max_examples=25)
@given(data=st.data())
def test_every_item_is_in_one_group_and_sizes_keep_the_bound(data: st.DataObject) -> None:
    items = data.draw(st.integers(2, 20))
    groups = data.draw(st.integers(1, items))
    ratio = data.draw(st.sampled_from([1.0, 1.5, 2.0, 3.0]))
    points = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((items, 2)).round(1)
    groups_of_items = balanced_groups(points, groups, ratio)
    assert sorted(item for group in groups_of_items for item in group) == list(range(items))
    sizes = [len(group) for group in groups_of_items]
    assert len(groups_of_items) == groups and min(sizes) >= 1
    assert max(sizes) <= max(ratio * min(sizes), -(-items // groups)) and (ratio > 1 or max(sizes) - min(sizes) <= 1)


def test_size_bounds_allow_what_the_ratio_allows() -> None:
    assert size_bounds(26, 8, 1.0) == [(3, 4)]
    assert size_bounds(32, 8, 1.0) == [(4, 4)]
    assert size_bounds(32, 8, 2.0) == [(2, 4), (3, 6), (4, 8), (4, 4)]
    for wrong in (0.5, float("inf"), float("nan")):
        with pytest.raises(UserError, match="size ratio"):
            size_bounds(8, 2, wrong)


def test_of_equally_tight_groups_those_with_even_loads_are_taken() -> None:
    """Two heavy and two light items at each of two far places, towers of two: heavy ones are dealt to different towers."""
    points = np.repeat([[0.0, 0.0], [9.0, 0.0]], 4, axis=0)
    groups = balanced_groups(points, 4, loads=[5, 5, 1, 1, 1, 1, 5, 5])
    assert {tuple(sorted(5 if i in (0, 1, 6, 7) else 1 for i in group)) for group in groups} == {(1, 5)}
    assert all(len({i // 4 for i in group}) == 1 for group in groups)  # never at the cost of coherence


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        (None, [[0, 1], [2, 3]]),  # the tightest, where all loads are one
        ([5, 4, 1, 0], [[0, 2], [1, 3]]),  # 6 instead of 9; the diagonals would have 5
        ([5, 1, 4, 0], [[0, 1], [2, 3]]),
    ],
)
def test_loads_decide_between_groups_of_nearly_the_same_tightness(
    monkeypatch: pytest.MonkeyPatch, loads: list[float] | None, expected: list[list[int]]
) -> None:
    """The corners of a rectangle of 1 by 1.02: sides have an inertia of 1 and of 1.0404, within a twentieth, and diagonals of 2.0404."""
    groupings, seeds = [[0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], list[int]()

    class EachSeedAnother:
        def __init__(self, groups: int, *, random_state: int, size_min: int, size_max: int, n_init: int, n_jobs: int):
            assert (groups, size_min, size_max, n_init, n_jobs) == (2, 2, 2, 1, 1)
            seeds.append(random_state)
            self.labels = groupings[random_state % 3]

        def fit_predict(self, points: np.ndarray) -> np.ndarray:
            return np.array(self.labels)

    monkeypatch.setitem(sys.modules, "k_means_constrained", SimpleNamespace(KMeansConstrained=EachSeedAnother))
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.02], [1.0, 1.02]])
    assert balanced_groups(corners, 2, loads=loads) == balanced_groups(corners, 2, loads=loads, seed=3) == expected
    assert seeds == [*range(SEEDS), *range(3 * SEEDS, 4 * SEEDS)]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_adjusted_rand_index_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    one, other = ([[str(i) for i, p in enumerate(pairs) if p[side] == g] for g in range(4)] for side in (0, 1))
    assert adjusted_rand_index(one, other) == pytest.approx(adjusted_rand_score(*zip(*pairs)), abs=1e-12)


def test_strided_is_the_papers_example() -> None:
    assert strided(26, 8) == [[0, 8, 16, 24], [1, 9, 17, 25], *([i, i + 8, i + 16] for i in range(2, 8))]


def test_tables_are_dealt_by_weight_in_rounds() -> None:
    """(bytes, work) of each: the heaviest of a round goes to the lightest tower, by whichever of the two is more there."""
    assert dealt([(9, 1), (1, 1), (8, 1), (2, 1), (3, 1), (4, 1)], 2) == [[0, 3, 4], [1, 2, 5]]  # 14 and 13 of 27 bytes
    assert dealt([(1, 1), (1, 7), (1, 1), (1, 4)], 2) == [[1, 2], [0, 3]]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40), st.data())
def test_dealt_towers_differ_by_one_table(loads: list[tuple[float, float]], data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, len(loads)))
    members = dealt(loads, groups)
    assert sorted(at for group in members for at in group) == list(range(len(loads)))
    assert max(map(len, members)) - min(map(len, members)) <= 1
    bytes_alone = dealt([(size, 0.0) for size, _ in loads], groups)
    weights = [sum(loads[at][0] for at in group) for group in bytes_alone]
    assert max(weights) <= min(weights) + max(size for size, _ in loads) + 1e-9


def test_weighted_towers_are_evener_than_strided_ones_on_criteos_tables() -> None:
    """Of four towers the fullest has 49 in place of 69 million rows, and each has as many tables as a strided one."""
    rows = [45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176, 345138, 10]
    rows += [2209, 11267, 128, 4, 974, 14, 48937457, 11316796, 40094537, 452104, 12606, 104, 35]
    tables = tuple(Table(f"t{n}", count, 128, (f"f{n}",)) for n, count in enumerate(rows))
    towers = {s: TowerOptions(count=4, strategy=s).towers(tables, cluster(4, 2)) for s in ("strided", "weighted")}
    fullest = {s: max(sum(rows[int(f[1:])] for f in tower) for tower in each) for s, each in towers.items()}
    assert sorted(map(len, towers["weighted"])) == sorted(map(len, towers["strided"]))
    assert fullest == {"strided": 69_409_765, "weighted": 49_297_524}


def test_groups_are_divided_apart_by_their_share() -> None:
    """XLRM's 32 item, 48 user and 16 item-user features in the paper's 16 towers: 5, 8 and 3 of them."""
    names = [f"{group}_{i}" for group, count in (("item", 32), ("user", 48), ("item_user", 16)) for i in range(count)]
    tables = tuple(Table(name, 10, 4, (name,)) for name in names)
    options = TowerOptions(count=16, groups=["item_user_*", "item_*", "user_*"])
    kinds = [{name.rpartition("_")[0] for name in tower} for tower in options.towers(tables, cluster(4, 2))]
    assert all(len(kind) == 1 for kind in kinds)
    assert [kinds.count({group}) for group in ("item", "user", "item_user")] == [5, 8, 3]
    assert shares([32, 48, 16], 3) == [1, 1, 1] and shares([1, 9], 10) == [1, 9] and shares([9, 1, 1], 4) == [2, 1, 1]
    with pytest.raises(UserError, match="each group needs a tower; given 2; allowed: 3 to 96"):
        TowerOptions(count=2, groups=options.groups).towers(tables, cluster(2, 2))
    with pytest.raises(UserError, match="no table of the remaining ones fits; given itm_"):
        TowerOptions(count=4, groups=["itm_*"]).towers(tables, cluster(4, 2))


TABLES = tuple(Table(f"t{i}", 10, 4, (f"f{i}",)) for i in range(4))


def partition(groups: tuple[tuple[str, ...], ...] = (("f3", "f0"), ("f1", "f2"))) -> Partition:
    names = tuple(f"f{i}" for i in range(4))
    return Partition(
        towers=groups,
        strategy="coherent",
        features=names,
        affinity=tuple(tuple(1.0 if i == j else 1 / 3 for j in range(4)) for i in range(4)),
        coordinates=tuple((0.1 * i, -1 / 7) for i in range(4)),
        stress=0.25,
        seed=3,
        size_ratio=1.0,
        data_fingerprint="abc",
        balance={"sizes": (2, 2), "size_ratio": 1.0},
        source={"model": "dlrm", "steps": 5},
    )


def test_a_file_gives_back_what_was_saved_and_makes_the_towers(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    partition().save(path)
    again = load_partition(path)
    assert replace(again, balance={}) == replace(partition(), balance={})
    assert TowerOptions(partition=str(path)).towers(TABLES, cluster(2, 2)) == (("f3", "f0"), ("f1", "f2"))
    assert TowerOptions().towers(TABLES, cluster(2, 2)) == (("f0", "f2"), ("f1", "f3"))
    assert TowerOptions(count=4).towers(TABLES, cluster(2, 2)) == (("f0",), ("f1",), ("f2",), ("f3",))
    shared = (Table("t", 10, 4, ("f0", "f1")), *TABLES[2:])
    assert TowerOptions().towers(shared, cluster(2, 2)) == (("f0", "f1", "f3"), ("f2",))


def test_towers_that_share_hosts_unevenly_are_dealt_by_weight() -> None:
    """Three on four hosts: the heaviest gets two. Three on two hosts: the heaviest has a host of its own."""
    tables = tuple(Table(f"t{i}", rows, 4, (f"f{i}",)) for i, rows in enumerate((10, 90, 40)))
    assert TowerOptions(count=3).towers(tables, cluster(4, 2))[0] == ("f1",)
    assert TowerOptions(count=3).towers(tables, cluster(2, 2)) == (("f0",), ("f2",), ("f1",))  # the first host has two
    four = tuple(Table(f"t{i}", rows, 4, (f"f{i}",)) for i, rows in enumerate((90, 80, 40, 10)))  # two on each host
    assert TowerOptions(count=4).towers(four, cluster(2, 2)) == (("f0",), ("f3",), ("f1",), ("f2",))
    assert TowerOptions(count=4).towers(four, cluster(1, 2)) == (("f0",), ("f1",), ("f2",), ("f3",))  # all on one host


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda read: read.update(format="other"), "not a partition; given format other"),
        (lambda read: read.pop("stress"), "p.json: stress"),
        (lambda read: read["towers"][0].append("f1"), "f1 is in several"),
        (lambda read: read["towers"].append([]), "do not fit"),
        (lambda read: read["towers"][0].append([1]), r"towers\[0\]\[2\] is of another shape"),
        (lambda read: read["affinity"].pop(), "do not fit"),
        (lambda read: read.update(towers=3), "towers is of another shape"),
        (lambda read: read.update(affinity=[1, 2]), r"affinity\[0\] is of another shape"),
        (lambda read: read["features"].__setitem__(1, {"a": [1]}), r"features\[1\] is of another shape"),
        (lambda read: read.update(seed="x"), "seed is of another shape"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, change, says: str) -> None:
    path = tmp_path / "p.json"
    partition().save(path)
    read = json.loads(path.read_text())
    change(read)
    path.write_text(json.dumps(read))
    with pytest.raises(UserError, match=says) as refusal:
        load_partition(path)
    assert "\n" not in str(refusal.value)


def test_what_does_not_fit_is_refused_with_figures(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    partition().save(path)
    file = str(path)
    with pytest.raises(UserError, match="4 features there, 3 here: 1 only there, such as f3"):
        TowerOptions(partition=file).towers(TABLES[:3], cluster(2, 2))
    with pytest.raises(UserError, match="1 only here, such as g"):
        TowerOptions(partition=file).towers((*TABLES, Table("g", 1, 4, ("g",))), cluster(2, 2))
    with pytest.raises(UserError, match="another number of towers.*given 2"):
        TowerOptions(count=4, partition=file).towers(TABLES, cluster(4, 2))
    with pytest.raises(UserError, match="several towers.*table t"):
        TowerOptions(partition=file).towers((Table("t", 10, 4, ("f0", "f1")), *TABLES[2:]), cluster(2, 2))
    with pytest.raises(UserError, match="cannot share the hosts; given 2 towers on 3 hosts; allowed: 1, 3, or more than 3"):
        TowerOptions(count=2).towers(TABLES, cluster(3, 2))
    for count in (0, 5):
        with pytest.raises(UserError, match="1 to 4"):
            TowerOptions(count=count).towers(TABLES, cluster(2, 2))
    with pytest.raises(UserError, match="none.json: no such file; python -m recsys_lab partition writes one"):
        TowerOptions(partition=str(tmp_path / "none.json")).towers(TABLES, cluster(2, 2))
    (tmp_path / "text").write_text("{")
    with pytest.raises(UserError, match="no JSON"):
        TowerOptions(partition=str(tmp_path / "text")).towers(TABLES, cluster(2, 2))
    with pytest.raises(UserError, match="other features.*1 are in one only"):
        adjusted_rand_index([["a"]], [["a", "b"]])


def test_what_is_no_number_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(partition(), stress=float("nan")).save(tmp_path / "towers.json")
