"""The model card: what the folder holds, what the model was trained on, how good it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_lab.base.export_files import CARD_FILE, ONNX_FILE
from recsys_lab.base.files import write_text
from recsys_lab.export.inputs import RawInputs
from recsys_lab.export.trained_run import TrainedRun
from recsys_lab.plan.explain import explain

if TYPE_CHECKING:
    from recsys_lab.export.export import Exported

METRICS = ("auc", "ne", "log_loss", "calibration", "hit_rate_10", "ndcg_10", "examples", "users")


def write_card(folder: Path, run: TrainedRun, exported: Exported, inputs: RawInputs) -> None:
    write_text(folder / CARD_FILE, "\n".join(_lines(folder, run, exported, inputs)) + "\n")


def accuracy(exported: Exported) -> tuple[str, str]:
    """What the format of the tables costs: in weights, in quality."""
    change = exported.auc
    error = f"largest error of a weight {exported.largest_error:.3g} (the greatest is {exported.greatest_weight:.3g})"
    if change.before is None or change.after is None:
        return error, f"AUC change not measured: {change.why_not}"
    of = f"AUC {change.before:.6f} with tables as trained, {change.after:.6f} as exported, over {change.examples:,} rows of test"
    return error, f"{of}: {change.after - change.before:+.6f}"


def _lines(folder: Path, run: TrainedRun, exported: Exported, inputs: RawInputs) -> Iterator[str]:
    choices, environment = run.experiment.choices, run.record.environment
    ranks = inputs.history is not None
    yield from (f"# {choices['model']} on {choices['data']}", "")
    yield "Predicts the next item of a history." if ranks else "Predicts the probability of a click."
    yield from ("", "## Use", "", "    python serve.py < rows.csv", "")
    columns = [one["column"] for one in inputs.dense] + list(dict.fromkeys(one["column"] for one in inputs.features.values()))
    yield f"reads CSV or JSON lines with the columns {', '.join(f'`{name}`' for name in columns)}. It needs torch and safetensors."
    yield from ("", "## Files", "")
    yield "- `dense.pt2`: the dense arch, a program of `torch.export`; its weights also in `dense.safetensors`."
    if (folder / ONNX_FILE).is_file():
        yield "- `dense.onnx`: the same for ONNX."
    yield f"- `tables-*.safetensors`: the embedding tables, {exported.tables}. `model.json` says which rows are where."
    yield "- `vocabulary.safetensors`: the row of each value. `model.json`: columns and scaling."
    yield "- `serve.py` and `lookup.py`: an example of how to serve it."
    yield from ("", "## Data", "")
    yield from (f"- {note}" for note in run.record.data_notes)
    yield f"- fingerprint `{(environment.get('data') or {}).get('fingerprint')}`"
    yield from ("", "## Quality", "")
    yield from _metrics(run.record.result.get("quality") or {})
    yield f"Tables in {exported.tables}: {'; '.join(accuracy(exported))}."
    yield from (f"\n{note[0].upper()}{note[1:]}." for note in exported.notes)
    yield from ("", "## Training", "")
    yield f"- model `{choices['model']}`, sharder `{choices['sharder']}`, precision `{choices['precision']}`, seed {run.experiment.seed}"
    yield f"- weights of `{run.checkpoint.name}`; config `{run.experiment.fingerprint}`; plan `{run.plan.fingerprint}`"
    dirty = " with changes" if environment.get("dirty") else ""
    yield f"- commit {environment.get('commit') or 'unknown'}{dirty}"
    yield from ("", "The plan by which it was trained:", "")
    yield from (f"    {line}" for line in explain(run.plan))


def _metrics(quality: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A table of the splits, as measured when training ended."""
    names = [name for name in METRICS if any(of.get(name) is not None for of in quality.values())]
    if not names:
        return
    yield f"| split | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for split, of in quality.items():
        yield f"| {split} | {' | '.join(_cell(of.get(name)) for name in names)} |"
    yield from ("", "Measured at the end of training.", "")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6f}"
