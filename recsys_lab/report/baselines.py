"""The baselines beside a model's quality, in sentences and as rows of a table.

Where a model loses to the regression, it says what to try.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_lab.record.baselines import is_baseline, lost_by
from recsys_lab.record.item_baselines import NAMES, lost_to

REGRESSION, BASE_RATE = "logistic regression", "base rate"
ADVICE = (
    "try more regularisation (optimizer.sparse.weight_decay=0.1 model.dropout=0.2), a smaller model (model.embedding_dim=4), more rows, "
    "or a search (docs/search.md); look for columns to drop (data.drop)"
)

STAYED = f"the model is the {REGRESSION} that it began as: no later weights had a validation AUC that was higher by more than chance"


def overrides_text(settings: Mapping[str, Any]) -> str:
    """Settings as words of a command."""
    return " ".join(f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items())


def baseline_rows(record: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """The figures of both baselines, of clicks or of next items, each under its split and its name."""
    if of_items := record.get("item_baselines"):
        return {f"{split}, {word}": own for name, word in NAMES.items() for split, own in of_items[name].items()}
    figures = record.get("baselines")
    if not figures:
        return {}
    both = ((REGRESSION, figures["logistic_regression"]), (BASE_RATE, figures["base_rate"]))
    return {f"{split}, {name}": own for name, splits in both for split, own in splits.items()}


def baseline_sentences(record: Mapping[str, Any]) -> list[str]:
    """A sentence a split, and one more where the model loses, or is the regression."""
    figures = record["baselines"]
    if not figures:
        return []
    base, regression = figures["base_rate"], figures["logistic_regression"]
    sentences = [
        f"{split}: {REGRESSION} AUC {own['auc']:.4f}, log loss {own['log_loss']:.4f}; {BASE_RATE} log loss {base[split]['log_loss']:.4f}"
        for split, own in regression.items()
    ]
    if figures["train_examples"] < figures["of_train_examples"]:
        sentences[0] += f" ({REGRESSION} of {figures['train_examples']:,} of {figures['of_train_examples']:,} rows)"
    return sentences + verdict(record)


def verdict(record: Mapping[str, Any]) -> list[str]:
    """Where the model loses to the regression, by how much, and what to try. Where it is no more than that, why. Else nothing.

    Of a model that was not trained to the end, only that.
    """
    if of_items := record.get("item_baselines"):
        return lost_to(of_items, record["quality"] or {})
    cut = record.get("ended_by")
    unfinished = cut and f"not trained to the end: {cut['steps']:,} of {cut['of_steps']:,} steps ({cut['key']})"
    figures, quality = record.get("baselines"), record["quality"] or {}
    gaps = lost_by(quality, figures["logistic_regression"]) if figures else {}
    if not gaps:
        stayed = figures and is_baseline(quality, figures["logistic_regression"])
        return [f"{STAYED}; {unfinished or 'more rows help most'}"] if stayed else []
    where = ", ".join(f"by {gap:.4f} AUC on {split}" for split, gap in gaps.items())
    return [f"the model loses to {REGRESSION} {where}: {unfinished or ADVICE}"]
