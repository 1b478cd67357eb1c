"""A million items in a table on two ranks: places and the first ten are those of a plain loop, in memory that a formula bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import sparse

from recsys_lab.data.interactions.held_out import HeldOut
from recsys_lab.data.interactions.histories import histories_of
from recsys_lab.data.interactions.inputs import Inputs
from recsys_lab.executor.shard import shard
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.plan import ShardingPlan
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.tables import Table
from recsys_lab.train import item_baselines
from recsys_lab.train.held_out import BLOCK_USERS, CHUNK_ITEMS, SAMPLED, Candidates, counts_by_vectors, item_chunks
from recsys_lab.train.item_baselines import _most_alike
from recsys_lab.train.next_items import _best
from tests.executor.sharded import FP32
from tests.models.sequences import SETTINGS
from tests.ranks import run_ranks

ITEMS, D, USERS, LENGTH, RANKS, SEED, PLACES = 1_000_000, 64, 300, 50, 2, 3, 10
KEYS = ["item", "positive", "negative"]
TABLE = (Table("item", ITEMS + 1, D, tuple(KEYS), "none"),)
CPU = torch.device("cpu")
#: What a process takes beside: torch's and gloo's buffers of a collective, Python's own objects.
BESIDE = 32 << 20


def held_out() -> HeldOut:
    """The last of each user's items, all of which are spread over the whole catalogue."""
    ids = np.random.default_rng(SEED).integers(1, ITEMS + 1, USERS * LENGTH)
    histories = histories_of(np.repeat(np.arange(USERS), LENGTH), ids, None, USERS, ITEMS, None)
    return HeldOut(Inputs(histories, LENGTH, False), histories.held_out(), 1, SEED)


def users_of(target: np.ndarray) -> torch.Tensor:
    """[n, D]: more or less like the item that each had last, so that it is the first, among the first ten, or anywhere."""
    vectors = torch.cat([initial_weight(TABLE[0], int(item), int(item) + 1, 0, D, SEED) for item in target])
    noise = torch.randn(len(target), D, generator=torch.Generator().manual_seed(SEED)) * vectors.std()
    return vectors + noise * torch.linspace(0, 3, len(target))[:, None]


def resident(field: str = "VmRSS") -> int:
    """Bytes of this process. VmHWM: the most since the last `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def bound(users: int, pairs: int) -> int:
    """Bytes: rows of a chunk on their way (ids, and what is sent, has arrived, was put in order and is scored), the scores of a block of
    users with what they are compared by, pairs that are left out as they are sorted, and what there is of each user.
    """
    chunk, block = CHUNK_ITEMS * (8 * 8 + 8 * 4 * D), 4 * 4 * min(users, BLOCK_USERS) * CHUNK_ITEMS
    return chunk + block + 8 * 8 * pairs + users * (8 * 4 * D + 12 * 8 * (SAMPLED + 1)) + BESIDE


def ranked() -> dict[str, Any]:
    """This rank's half of the users: how many items are above the held-out one, the first ten, and the memory it took."""
    plan = ShardingPlan("by_hand", 1, RANKS, TABLE, (in_row_blocks(TABLE[0], range(RANKS)),))
    model = Sequence(**SETTINGS | {"embedding_dim": D}).build(ModelInputs(TABLE, 0, torch.device("meta")))
    sharded = shard(model, plan, CPU, ("sgd", 0.1, 1e-8, 0.0), FP32, SEED)
    sharded.module.eval()
    data, rows = held_out(), np.array_split(np.arange(USERS), RANKS)[dist.get_rank()]
    users = users_of(data.target(rows))
    with torch.no_grad():
        chunks = item_chunks(sharded.module, KEYS, ITEMS, ITEMS + 1, CPU)
        next(chunks())  # what every look-up needs is there
        forget_peak()
        before = resident()
        every, sampled = counts_by_vectors(users, Candidates.of(data, rows, CPU), chunks)
        scores, items, _ = _best(users, *data.seen(rows), chunks, PLACES)
        peak = resident("VmHWM") - before
    most = bound(len(rows), len(rows) * LENGTH)
    return {"users": users, "above": every.above, "of_sampled": sampled.above, "items": items, "peak": peak, "bound": most}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells the peak")
@pytest.mark.timeout(300)
def test_a_million_items_are_ranked_in_bounded_memory() -> None:
    ranks = run_ranks(ranked, 1, RANKS, timeout_s=280)
    data, rows = held_out(), np.arange(USERS)
    table = initial_weight(TABLE[0], 0, ITEMS + 1, 0, D, SEED)
    users, above, items = (torch.cat([rank[name] for rank in ranks]) for name in ("users", "above", "items"))
    target, sampled = torch.from_numpy(data.target(rows)), data.sampled(rows, SAMPLED)
    others = 0
    for user in range(0, USERS, 10):
        scores = table @ users[user]
        scores[0] = -torch.inf
        score = float(scores[target[user]])
        assert int((scores[sampled[user]] > score).sum()) == int(torch.cat([rank["of_sampled"] for rank in ranks])[user])
        had = torch.from_numpy(data.seen(np.array([user]))[1])
        scores[had] = -torch.inf
        assert set(scores.topk(PLACES).indices.tolist()) == set(items[user].tolist()), user
        scores[target[user]] = -torch.inf
        others += abs(int((scores > score).sum()) - int(above[user]))
    assert others <= USERS // 100, "other products round otherwise, and swap next to nobody"
    places = above.sort().values
    assert int(places[0]) == 0 and (above < PLACES).float().mean() > 0.1 and int(places[-1]) > 1000, "a test of every place"
    for rank in ranks:
        assert rank["peak"] < rank["bound"] < 4 * USERS // RANKS * ITEMS, f"{rank['peak'] / 1e6:.1f} MB, {rank['bound'] / 1e6:.1f} allowed"


def test_baselines_of_a_million_items_take_work_by_what_users_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items are compared so many at once as users had both of, not so many as there are cells for."""
    data, rows, products = held_out(), np.arange(USERS), []
    lengths, seen = data.seen(rows)
    train = sparse.csr_matrix((np.ones(len(seen), np.float32), seen, [0, *np.cumsum(lengths)]), shape=(USERS, ITEMS + 1))
    monkeypatch.setattr(item_baselines, "_most_alike", lambda part, *rest: products.append(part.nnz) or _most_alike(part, *rest))
    like = item_baselines.neighbours(train)
    assert like.shape == (ITEMS + 1, ITEMS + 1) and max(products) <= item_baselines.AT_ONCE and len(products) < 10
    item = int(seen[0])
    who = np.repeat(rows, lengths)[seen == item]
    had = [set(seen[np.repeat(rows, lengths) == user].tolist()) - {item} for user in who]
    assert set(like[item].indices.tolist()) == set().union(*had)
    assert item_baselines.judged(data, rows[:8], lambda had: (had @ like).toarray())["users"] == 8
