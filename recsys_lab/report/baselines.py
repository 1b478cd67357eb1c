"""The baselines beside a model's quality, in sentences and as rows of a table.

Where a model loses to the regression, it says what to try.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_lab.record.baselines import is_baseline, lost_by

REGRESSION, BASE_RATE = "logistic regression", "base rate"
ADVICE = (
    "try more regularisation (optimizer.sparse.weight_decay=0.1 model.dropout=0.2), a smaller model (model.embedding_dim=4), more rows, "
    "or a search (docs/search.md); look for columns to drop (data.drop)"
)

STAYED = (
    f"the model is the {REGRESSION} that it began as: no later weights had a validation AUC that was higher by more than chance; "
    "more rows help most"
)


def said(settings: Mapping[str, Any]) -> str:
    """Settings as words of a command."""
    return " ".join(f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items())


def baseline_rows(record: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """The figures of both baselines, each under its split and its name."""
    found = record.get("baselines")
    if not found:
        return {}
    both = ((REGRESSION, found["logistic_regression"]), (BASE_RATE, found["base_rate"]))
    return {f"{split}, {name}": own for name, splits in both for split, own in splits.items()}


def baseline_sentences(record: Mapping[str, Any]) -> list[str]:
    """A sentence a split, and one more where the model loses, or is the regression."""
    found = record["baselines"]
    if not found:
        return []
    base, regression = found["base_rate"], found["logistic_regression"]
    sentences = [
        f"{split}: {REGRESSION} AUC {own['auc']:.4f}, log loss {own['log_loss']:.4f}; {BASE_RATE} log loss {base[split]['log_loss']:.4f}"
        for split, own in regression.items()
    ]
    if found["train_examples"] < found["of_train_examples"]:
        sentences[0] += f" ({REGRESSION} of {found['train_examples']:,} of {found['of_train_examples']:,} rows)"
    return sentences + verdict(record)


def verdict(record: Mapping[str, Any]) -> list[str]:
    """Where the model loses to the regression, by how much, and what to try. Where it is no more than that, why. Else nothing."""
    found, quality = record.get("baselines"), record["quality"] or {}
    gaps = lost_by(quality, found["logistic_regression"]) if found else {}
    if not gaps:
        return [STAYED] if found and is_baseline(quality, found["logistic_regression"]) else []
    where = ", ".join(f"by {gap:.4f} AUC on {split}" for split, gap in gaps.items())
    return [f"the model loses to {REGRESSION} {where}: {ADVICE}"]
