"""What needs no training, beside a model of the next item: popularity, and item-kNN (Sarwar et al. 2001, cosine of who had both).

Both know the train part alone: what came before each user's validation item. They rank the same items for the same users as a model does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from recsys_lab.base.progress import Progress
from recsys_lab.data.columns import stretches
from recsys_lab.data.protocol import DataSet, HeldOutItems
from recsys_lab.record.item_baselines import ItemBaselines
from recsys_lab.record.metrics import PLACES, retrieval
from recsys_lab.train.held_out import SAMPLED

#: Users of a split that are judged; items like an item that count; scores in memory at once.
MOST_USERS, NEIGHBOURS, AT_ONCE = 10_000, 100, 1 << 22
JUDGED = ("validation", "test")
#: Histories [n, items + 1] as counts -> scores of the same shape.
Scores = Callable[[sparse.csr_matrix], np.ndarray]
_KEPT: dict[str, ItemBaselines] = {}


def item_baselines(data: DataSet, seed: int) -> ItemBaselines:
    """Of `data`, whose held-out items a model is to find. Found once in a process: they depend on no seed but where users are drawn."""
    if data.fingerprint not in _KEPT:
        _KEPT.clear()
        _KEPT[data.fingerprint] = _found(data, seed)
    return _KEPT[data.fingerprint]


def _found(data: DataSet, seed: int) -> ItemBaselines:
    train = _histories(data.held_out["validation"], np.arange(data.held_out["validation"].rows))
    popularity = np.asarray(train.sum(axis=0)).ravel()
    like = neighbours(train)
    figures: dict[str, dict[str, dict[str, float]]] = {"popularity": {}, "item_knn": {}}
    with Progress(len(JUDGED), "popularity and item-kNN", "splits") as bar:
        for split in JUDGED:
            held_out = data.held_out[split]
            rows = np.arange(held_out.rows)
            if len(rows) > MOST_USERS:
                rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_USERS, replace=False))
            figures["popularity"][split] = judged(held_out, rows, lambda had: np.tile(popularity, (had.shape[0], 1)))
            figures["item_knn"][split] = judged(held_out, rows, lambda had: (had @ like).toarray())
            bar.update()
    return ItemBaselines(**figures, neighbours=NEIGHBOURS)


def neighbours(train: sparse.csr_matrix) -> sparse.csr_matrix:
    """[items, items] from who had what [users, items]: for each item, as a row, its cosine with the `NEIGHBOURS` most alike."""
    had = (train > 0).astype(np.float32).tocsc()
    length = np.sqrt(np.maximum(np.asarray(had.sum(axis=0)).ravel(), 1))
    scaled = (had @ sparse.diags(1 / length)).tocsr()
    columns, parts = scaled.T.tocsr(), []
    for first, stop in _runs((had.T @ np.diff(had.tocsr().indptr)), AT_ONCE):
        parts.append(_most_alike((columns[first:stop] @ scaled).tocoo(), first))
    return sparse.vstack(parts).tocsr()


def _runs(sizes: np.ndarray, most: int) -> list[tuple[int, int]]:
    """[first, stop) of neighbours in `sizes` [n] that are `most` together, or one alone."""
    ends, runs, first = np.cumsum(sizes), [], 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        runs.append((first, stop))
        first = stop
    return runs


def _most_alike(part: sparse.coo_matrix, first: int) -> sparse.csr_matrix:
    """Of cosines [n, items] of the items from `first` on, each row's `NEIGHBOURS` greatest, without the item itself."""
    other = part.row + first != part.col
    row, col, value = part.row[other], part.col[other], part.data[other]
    order = np.lexsort((col, -value, row))
    place = stretches(np.zeros(part.shape[0], np.int64), np.bincount(row, minlength=part.shape[0]))
    kept = order[place < NEIGHBOURS]
    return sparse.csr_matrix((value[kept], (row[kept], col[kept])), shape=part.shape)


def judged(held_out: HeldOutItems, rows: np.ndarray, scores: Scores) -> dict[str, float]:
    """Hit rate and NDCG of the users `rows`, as train/evaluate.py counts them: among all items not had before, and among random ones."""
    step = max(1, AT_ONCE // (held_out.items + 1))
    counts: list[list[np.ndarray]] = [[], []]
    for first in range(0, len(rows), step):
        own = rows[first : first + step]
        had, target, drawn = _histories(held_out, own), held_out.target(own), held_out.sampled(own, SAMPLED)
        of_all = scores(had)
        user = np.arange(len(own))
        score, of_drawn = of_all[user, target][:, None], np.where(drawn > 0, of_all[user[:, None], drawn], -np.inf)
        of_all[had.nonzero()] = -np.inf
        of_all[user, target] = of_all[:, 0] = -np.inf
        for kept, others in zip(counts, (of_all, of_drawn)):
            kept.append(np.stack([(others > score).sum(1), (others == score).sum(1)]))
    every, among = (retrieval(*np.concatenate(kept, axis=1)) for kept in counts)
    names = (f"hit_rate_{PLACES}", f"ndcg_{PLACES}")
    return dict(zip(names, every)) | {f"{name}_of_{SAMPLED + 1}": value for name, value in zip(names, among)} | {"users": len(rows)}


def _histories(held_out: HeldOutItems, rows: np.ndarray) -> sparse.csr_matrix:
    """[n, items + 1]: how often each user had each item before the held-out one."""
    lengths, seen = held_out.seen(rows)
    at = np.concatenate([[0], np.cumsum(lengths)])
    histories = sparse.csr_matrix((np.ones(len(seen), np.float32), seen, at), shape=(len(rows), held_out.items + 1))
    histories.sum_duplicates()
    return histories
