"""FLOPs of a sample of DLRMv4, forward and backward. A multiply-add counts as two; norms, look-ups and sums count nothing.

`formula_flops` is MLPerf's, by which rates are published. `left_out_flops` is what the model does beside it, `saved_flops` what it does not
do of it with a last layer for the candidate alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from recsys_lab.models.dlrm_v4 import ACTIONS, CANDIDATE, CONTEXT, DLRMV4, HISTORY, OTHER_TOKENS


def flops(options: DLRMV4, events: float) -> float:
    """All that the model does of a sample with a history of so many events."""
    tokens = events + OTHER_TOKENS
    beside = left_out_flops(options, events)
    return formula_flops(options, tokens, tokens**2) - saved_flops(options, tokens, tokens**2) + sum(beside.values())


def formula_flops(options: DLRMV4, tokens: float, tokens_squared: float) -> float:
    """The layers' two linear products, and the causal half of attention, whose backward pass has five products to the two forward.

    Args:
        options: the model's.
        tokens: S of a sample, or its mean.
        tokens_squared: the mean of S squared.

    Returns:
        FLOPs of a sample: 315.680 G for 4,096 tokens.
    """
    projected = 6 * tokens * options.embedding_dim * 2 * _asked(options)
    return options.layers * (projected + 7 * tokens_squared / 2 * _asked(options) + 6 * tokens * _mixed(options) * options.embedding_dim)


def saved_flops(options: DLRMV4, tokens: float, tokens_squared: float) -> float:
    """Of the last layer where it computes one token of S: half of the first product, attention but for one row, the last product."""
    if options.last_layer == "all":
        return 0.0
    dim, others = options.embedding_dim, tokens - 1
    return 6 * others * dim * (_asked(options) + _mixed(options)) + 7 * (tokens_squared / 2 - tokens) * _asked(options)


def left_out_flops(options: DLRMV4, events: float) -> Mapping[str, float]:
    """What the formula does not count.

    Args:
        options: the model's.
        events: n of a sample's history.

    Returns:
        FLOPs of a sample: `mlps` of every event and of the candidate, `recomputed` in the backward pass, and `ends` that a sample has once.
    """
    dim, inner, tokens = options.embedding_dim, options.hidden, events + OTHER_TOKENS
    inputs = len(HISTORY) * dim + ACTIONS * options.action_dim
    projected = 2 * tokens * dim * _asked(options) * 2
    spared = 2 * (tokens - 1) * dim * _asked(options) if options.last_layer == "candidate" else 0.0
    ends = len(CONTEXT) * dim**2 + (dim + 4) * dim + len(CANDIDATE) * dim**2 + dim**2 + dim**2 + dim
    return {
        "mlps": 6 * (events + 1) * inner * (inputs + len(HISTORY) * dim),
        "recomputed": options.layers * projected - spared if options.recompute else 0.0,
        "ends": 6.0 * ends,
    }


def _asked(options: DLRMV4) -> int:
    """Columns of gate and queries, and of values and keys."""
    return options.heads * (options.attention_dim + options.linear_dim)


def _mixed(options: DLRMV4) -> int:
    """Columns that the layer's last product reads."""
    return 3 * options.heads * options.linear_dim
