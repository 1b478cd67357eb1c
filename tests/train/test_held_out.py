"""Held-out items are found as by a plain loop over all items, wherever their table lies and however users are split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from recsys_lab.data.capped import capped
from recsys_lab.data.interactions import open_interactions
from recsys_lab.data.loader import RankLoader
from recsys_lab.errors import UserError
from recsys_lab.executor import shard as torchrec
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.sequence.network import SequenceNetwork
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.record.metrics import retrieval
from recsys_lab.tables import Table
from recsys_lab.train import held_out as places
from recsys_lab.train.evaluate import evaluate
from recsys_lab.train.objective import objective_of
from tests.data.helpers import interactions_options, write
from tests.models.sequences import SETTINGS, keyed
from tests.ranks import run_ranks

ITEMS, USERS, D, SEED = 130, 23, 8, 5
ITEM_WEIGHTS = "embeddings.embeddings.item.weight"
FP32 = Precision("fp32", "fp32", "fp32", "fp32", "fp32", "fp32")
CPU = torch.device("cpu")


def log_file(root: Path) -> Path:
    """Users with 3 to 14 items, some more than once; the last one has had every item, so that there is nothing to find for it."""
    rng = np.random.default_rng(3)
    lines = [" ".join(map(str, [user, *rng.integers(1, ITEMS + 1, rng.integers(3, 15))])) for user in range(1, USERS + 1)]
    write(root / "log.txt", [*lines, " ".join(map(str, [USERS + 1, *range(1, ITEMS + 1)]))])
    return root


def opened(root: Path, objective: str):
    options = {"objective": objective, "max_length": 6, "format": "sequences"}
    return open_interactions(**interactions_options(root, **options))


def model_for(data, objective: str, device: str = "cpu") -> tuple[SequenceNetwork, tuple[Table, ...]]:
    names = tuple(f.name for f in data.features)
    tables = (Table("item", data.features[0].rows, D, names, "none"),)
    return Sequence(**SETTINGS | {"embedding_dim": D, "objective": objective, "max_length": 6}).build(
        ModelInputs(tables, 0, torch.device(device))
    ), tables


def unsharded(data, objective: str) -> SequenceNetwork:
    model, tables = model_for(data, objective)
    initialise_dense(model, SEED, CPU)
    fill_tables(model.embeddings, tables, SEED)
    return model.eval()


def judged(model: torch.nn.Module, data, objective: str, split: str, most_pairs: int = 10**9) -> dict:
    loader = RankLoader(
        data.splits[split],
        data,
        batch_size=10 if objective == "next_item" else 67,  # a click model reads every pair of user and item
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        seed=1,
        shuffle=False,
        prefetch_batches=0,
        pin_memory=False,
    )
    evaluation = objective_of(objective, data, most_pairs).final(split, loader)
    assert evaluation is not None
    actual = evaluate(model, evaluation, CPU).quality
    assert actual == evaluate(model, evaluation, CPU).quality  # it begins anew
    return actual


CASES = [(objective, split) for objective in ("next_item", "click") for split in ("validation", "test")]


def alone(root: Path) -> tuple[list[dict], dict]:
    """Each case's figures of the unsharded model, and a click model's where not every item may be scored."""
    data = {objective: opened(root, objective) for objective, _ in CASES}
    models = {objective: unsharded(data[objective], objective) for objective in data}
    actual = [judged(models[objective], data[objective], objective, split) for objective, split in CASES]
    return actual, judged(models["click"], data["click"], "click", "test", USERS * 100)


def sharded(root: Path) -> tuple[list[dict], str]:
    """Each case's figures with the item table in blocks of rows over all ranks, and what a model that diverged is told."""
    actual = []
    for objective, split in CASES:
        data = opened(root, objective)
        model, tables = model_for(data, objective, "meta")
        world, rows = dist.get_world_size(), tables[0].rows
        block = -(-rows // world)
        shards = tuple(Shard((r,), min(rows, r * block), min(rows, (r + 1) * block), 0, D) for r in range(world))
        plan = ShardingPlan("by_hand", 1, world, tables, (Placement("item", "row_wise", shards),))
        sharded_model = torchrec.shard(model, plan, CPU, ("sgd", 0.1, 1e-8, 0.0), FP32, SEED, hot_rows=None)
        actual.append(judged(sharded_model.module, data, objective, split))
    data = opened(root, "next_item")
    lost = unsharded(data, "next_item")
    torch.nn.init.constant_(lost.hidden.weight, float("nan"))
    try:
        judged(lost, data, "next_item", "test")
    except UserError as error:
        return actual, str(error)
    return actual, ""


def judged_in_smaller_tables(root: Path) -> list[tuple[dict, dict]]:
    """Each case's figures with 40 rows for all items, and those of a table of every item whose rows repeat these 40."""
    actual = []
    for objective, split in CASES:
        data = opened(root, objective)
        small = capped(data, 40)
        model, repeated = unsharded(small, objective), unsharded(data, objective)
        repeated.load_state_dict(model.state_dict() | {ITEM_WEIGHTS: model.state_dict()[ITEM_WEIGHTS][torch.arange(ITEMS + 1) % 40]})
        actual.append((judged(model, small, objective, split), judged(repeated, data, objective, split)))
    return actual


def by_hand(root: Path, objective: str, split: str) -> dict:
    """One user at a time, item against item."""
    data = opened(root, objective)
    model, held_out = unsharded(data, objective), data.held_out[split]
    h = held_out.inputs.histories
    actual: dict[str, list] = {"every": [], "drawn": []}
    for row, user in enumerate(held_out.users):
        history = h.ids[h.first[user] : h.first[user + 1] - held_out.back].tolist()
        target = int(h.ids[h.first[user + 1] - held_out.back])
        score = scores_of(model, objective, history[-6:])
        others = [item for item in score if item != target and item not in history]
        drawn = held_out.sampled(np.array([row]), 99)[0].tolist()
        assert len(set(drawn)) == 99 and not set(drawn) & set(h.ids[h.first[user] : h.first[user + 1]].tolist())
        for name, against in (("every", others), ("drawn", drawn)):
            actual[name].append(sum(score[item] > score[target] for item in against))
    both = [retrieval(above, np.zeros_like(above)) for above in actual.values()]
    return {
        "hit_rate_10": both[0][0],
        "ndcg_10": both[0][1],
        "hit_rate_10_of_100": both[1][0],
        "ndcg_10_of_100": both[1][1],
        "users": len(held_out.users),
    }


@torch.no_grad()
def scores_of(model: SequenceNetwork, objective: str, history: list[int]) -> dict[int, float]:
    """Of every item, after this history."""
    items = range(1, ITEMS + 1)
    if objective == "click":
        actual = model(None, keyed({"item": [history for _ in items], "candidate": [[item] for item in items]}))
    else:
        user = model.users(model.embeddings(keyed({"item": [history], "positive": [[]], "negative": [[]]})))[0]
        actual = model.embeddings.embeddings["item"].weight[1:] @ user
    return dict(zip(items, actual.tolist()))


def test_places_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    ((actual, bounded),) = run_ranks(alone, 1, 1, log_file(tmp_path))
    for (objective, split), figures in zip(CASES, actual):
        expected = by_hand(tmp_path, objective, split)
        assert {name: figures[name] for name in expected} == pytest.approx(expected)
        assert ("auc" in figures) == (objective == "click")
    assert bounded["ndcg_10"] is None and bounded["hit_rate_10"] is None
    assert bounded["ndcg_10_of_100"] == actual[-1]["ndcg_10_of_100"]


def test_items_share_the_rows_of_a_smaller_table(tmp_path: Path) -> None:
    (cases,) = run_ranks(judged_in_smaller_tables, 1, 1, log_file(tmp_path))
    for actual, expected in cases:
        assert actual == expected and actual["ndcg_10"] is not None


def test_places_are_the_same_wherever_items_and_users_are(tmp_path: Path) -> None:
    ((expected, _),) = run_ranks(alone, 1, 1, log_file(tmp_path))
    for actual, error in run_ranks(sharded, 1, 3, tmp_path):
        assert actual == [pytest.approx(figures) for figures in expected]
        assert "23 of 23 scores on split test are not finite" in error


def test_chunks_and_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items in chunks that no number divides, users in blocks, against one matrix of all scores."""
    data = opened(log_file(tmp_path), "next_item")
    held_out, model = data.held_out["test"], unsharded(data, "next_item")
    rows = np.arange(held_out.rows)
    users = torch.randn(len(rows), D)
    users[3] = 0.0  # scores every item alike
    candidates = places.Candidates.of(held_out, rows, CPU)
    vectors = model.embeddings.embeddings["item"].weight.detach()
    scores = users @ vectors.T
    scores[:, 0] = -np.inf
    target = scores.gather(1, candidates.target[:, None])
    drawn = scores.gather(1, candidates.sampled)
    scores[candidates.excluded[0], candidates.excluded[1]] = -np.inf
    monkeypatch.setattr(places, "CHUNK_ITEMS", 37)
    monkeypatch.setattr(places, "BLOCK_USERS", 4)
    with torch.no_grad():
        chunks = places.item_chunks(model, [f.name for f in data.features], ITEMS, ITEMS + 1, CPU)
        every, sampled = places.counts_by_vectors(users, candidates, chunks)
    assert [len(part) for _, part in chunks()] == [37, 37, 37, 19]
    assert every.above.tolist() == (scores > target).sum(1).tolist() and every.equal.tolist() == (scores == target).sum(1).tolist()
    assert sampled.above.tolist() == (drawn > target).sum(1).tolist()
    had = len(set(held_out.seen(np.array([3]))[1].tolist()) | {int(candidates.target[3])})
    assert (int(every.above[3]), int(every.equal[3])) == (0, ITEMS - had) and int(sampled.equal[3]) == 99
    assert bool(every.finite.all())
