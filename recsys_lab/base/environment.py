"""Variables of the environment that have few words. They are read here, so that a misspelt word is refused and not ignored."""

from __future__ import annotations

import os

from recsys_lab.base.files import check_here
from recsys_lab.errors import UserError, did_you_mean

KERNELS, DEVICE, COLLECTIVES = "RECSYS_LAB_KERNELS", "RECSYS_LAB_DEVICE", "RECSYS_LAB_COLLECTIVES"
SHARED_MEMORY = "shared_memory"
#: By variable: the words that it can be. Of a question they are for no and for yes.
WORDS = {
    KERNELS: ("cpp", "torch"),
    DEVICE: ("auto", "cpu", "cuda"),
    COLLECTIVES: ("gloo", SHARED_MEMORY),
    "RECSYS_LAB_BF16_PRODUCTS": ("bf16", "fp32"),
    "RECSYS_LAB_FP32_PRODUCTS": ("onednn", "torch"),
    "RECSYS_LAB_BF16_BY_WEIGHTS": ("onednn", "tiles"),
    "RECSYS_LAB_BF16_WIDE": ("as_others", "turned"),
    "RECSYS_LAB_ROW_PREFETCH": ("write", "read"),
    "RECSYS_LAB_LARGE_RESULTS": ("cached", "past"),
}


def word_of(variable: str) -> str | None:
    """What the environment says; None where it says nothing. Raises UserError for a word that the variable does not have."""
    word, allowed = os.environ.get(variable) or None, WORDS[variable]
    if word is not None and word not in allowed:
        raise UserError("no such word", where=variable, given=word, allowed=", ".join(allowed), remedy=did_you_mean(word, allowed))
    return word


def check_process() -> None:
    """Raises UserError where the current folder is gone, and for a variable with a word that it does not have."""
    check_here()
    check_variables()


def check_variables() -> None:
    """Raises UserError for the first variable with a word that it does not have: before any work that would ask for it."""
    for variable in WORDS:
        word_of(variable)
