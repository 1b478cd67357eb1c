"""Quality over a whole split, exact: AUC, normalized entropy, log loss, calibration, TorchRec's names and definitions. Places of items.

TorchRec's own `auc` looks at a window of recent samples. Here every sample counts, and the order of samples does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recsys_lab.errors import UserError

QUALITY = ("auc", "ne", "log_loss", "calibration", "examples")
RETRIEVAL = ("hit_rate_10", "ndcg_10", "hit_rate_10_of_100", "ndcg_10_of_100", "users")
#: The metrics of which more is better; of the others less is.
HIGHER_IS_BETTER = {"auc", *RETRIEVAL[:-1]}
PLACES = 10
#: How places of held-out items are counted, in the words of a record.
NEXT_ITEM_PROTOCOL = {
    "split": "leave-one-out in order of time: a user's last item is test, the one before it validation, the others train",
    "history": "all of a user's items before the held-out one, the validation item too where the test item is held out",
    "candidates": "every item that the user had not had before, and the held-out one",
    "sampled_candidates": "the held-out item and 99 distinct random ones that the user never had (names with _of_100)",
    "ties": "items of equal score may stand in any order: the mean over all orders",
    "users": "all with 3 events or more, and an item that they never had",
    "chosen_by": "validation alone",
}


def quality(logits: ArrayLike, labels: ArrayLike, where: str = "validation") -> dict[str, float | int]:
    """Quality of the predictions on a split.

    The result depends on the set of (logit, label) pairs alone, to the last bit, not on their order.

    Args:
        logits: [N], any finite value.
        labels: [N], 0 or 1.
        where: the split's name.

    Returns:
        auc: chance that a positive scores above a negative, ties counted half.
        log_loss: mean cross entropy, in nats.
        ne: log loss over the entropy of the base rate (He et al., 2014); 1 is no better than predicting the average.
        calibration: mean prediction over mean label.
        examples: N.

    Raises:
        UserError: for an empty split, one with a single class (AUC is undefined), and predictions that are not finite.
    """
    z = np.asarray(logits, dtype=np.float64)
    y = np.asarray(labels, dtype=np.float64)
    assert z.shape == y.shape and z.ndim == 1, f"logits {z.shape} and labels {y.shape} must be alike and flat"
    if not z.size:
        raise UserError(f"split {where} is empty: quality is undefined", remedy=f"give the split {where} some rows")
    positive = y == 1
    assert (positive | (y == 0)).all(), "labels are 0 or 1"
    bad = int(np.count_nonzero(~np.isfinite(z)))
    if bad:
        raise UserError(
            f"{bad} of {z.size} predictions on split {where} are not finite: training diverged",
            remedy="lower the learning rate or clip gradients",
        )
    if positive.all() or not positive.any():
        only = int(positive.any())
        raise UserError(f"split {where} has only label {only}: AUC is undefined", remedy=f"give the split {where} rows of both labels")
    return _figures(z, positive)


def quality_of_part(logits: ArrayLike, labels: ArrayLike) -> dict[str, float | int | None]:
    """The same of some rows of a split, one or more, whose predictions are finite.

    Of one class `auc` and `ne` are None. `calibration` is None where no label is 1.
    """
    return _figures(np.asarray(logits, dtype=np.float64), np.asarray(labels) == 1)


def _figures(z: np.ndarray, positive: np.ndarray) -> dict[str, Any]:
    p, n = np.sort(z[positive]), np.sort(z[~positive])
    both = bool(p.size and n.size)
    log_loss = (_softplus(-p).sum() + _softplus(n).sum()) / z.size
    base_rate = p.size / z.size
    entropy = -(base_rate * np.log(base_rate) + (1 - base_rate) * np.log1p(-base_rate)) if both else 0.0
    mean_prediction = (_sigmoid(p).sum() + _sigmoid(n).sum()) / z.size
    return {
        "auc": _auc(p, n) if both else None,
        "ne": float(log_loss / entropy) if both else None,
        "log_loss": float(log_loss),
        "calibration": float(mean_prediction / base_rate) if p.size else None,
        "examples": int(z.size),
    }


def retrieval(above: ArrayLike, equal: ArrayLike, places: int = PLACES) -> tuple[float, float]:
    """Hit rate and NDCG at `places` of users' held-out items.

    `above` [N] counts the other items that scored higher, `equal` [N] those that scored the same.

    One item is right, so the ideal DCG is 1: NDCG is the mean of 1 / log2(place + 1), 0 below the first `places` (Kang and McAuley 2018,
    section IV-C). Items of equal score could stand in any order. Both figures are the mean over all orders. So a model that scores every
    item alike gets the figures of chance. The result depends on the set of pairs alone, to the last bit, not on their order.
    """
    a, e = np.asarray(above, np.int64), np.asarray(equal, np.int64)
    assert a.shape == e.shape and a.ndim == 1 and a.size, f"above {a.shape} and equal {e.shape} must be alike, flat and not empty"
    gain_before = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, places + 2)))])
    first, stop = np.minimum(a, places), np.minimum(a + e + 1, places)
    hits, gains = (stop - first) / (e + 1), (gain_before[stop] - gain_before[first]) / (e + 1)
    return float(np.sort(hits).mean()), float(np.sort(gains).mean())


def _auc(positives: np.ndarray, negatives: np.ndarray) -> float:
    """Mann-Whitney U over the number of pairs, from two sorted arrays: integers until the last division, so exact."""
    below = np.searchsorted(negatives, positives, side="left").sum(dtype=np.int64)
    not_above = np.searchsorted(negatives, positives, side="right").sum(dtype=np.int64)
    return (int(below) + int(not_above)) / (2 * positives.size * negatives.size)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -x))
