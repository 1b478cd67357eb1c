"""Writes the folder: whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from recsys_lab.base.export_files import DENSE_FILE, MODEL_FILE, ONNX_FILE, PROGRAM_FILE, SERVE_FILES, VERSION, WORDS_FILE
from recsys_lab.base.files import write_json
from recsys_lab.base.losses import BINARY
from recsys_lab.config.folders import VOCABULARY, WORDS_OF_RUN
from recsys_lab.config.frozen import CONFIG_FILE
from recsys_lab.errors import UserError, cannot_write
from recsys_lab.export.card import write_card
from recsys_lab.export.inputs import RawInputs, dense_width_of, raw_inputs
from recsys_lab.export.program import DenseArch, features_read, program_of, write_onnx
from recsys_lab.export.quality import Change, auc_change
from recsys_lab.export.tables import Written, write_tables
from recsys_lab.export.trained_run import TrainedRun
from recsys_lab.models.click_model import ClickModel
from recsys_lab.tables import Table
from recsys_lab.train import manifest
from recsys_lab.train.tensor_file import write_tensors


@dataclass(frozen=True)
class Exported:
    """What was written, in figures.

    Attributes:
        folder: where.
        checkpoint: whose weights they are.
        tables: the format of their numbers.
        bytes: of all files.
        largest_error: of a weight, as stored against as trained.
        greatest_weight: the greatest of them, to see that error by.
        auc: of the test split, before and after.
        notes: what else there is to say.
    """

    folder: str
    checkpoint: str
    tables: str
    bytes: int
    largest_error: float
    greatest_weight: float
    auc: Change
    notes: tuple[str, ...]


def export_run(folder: Path, out: Path, tables: str = "fp32", onnx: bool = False, words: Sequence[str] = ()) -> Exported:
    """Writes the model that the run in `folder` trained to the new folder `out`.

    Args:
        folder: of a run that has ended.
        out: is not there yet, or empty.
        tables: how their numbers are written, one of FORMATS.
        onnx: whether the dense arch is written for ONNX too.
        words: `hydra.searchpath=[file://CONF]`, where the config names code of the user's own.

    Returns:
        What was written.

    Raises:
        UserError: `out` holds something, `folder` left no weights, or they are broken; the dense arch cannot be traced.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError("the folder is not empty", where=out, remedy="name a new one: --out DIR")
    run = TrainedRun.of(folder, words)
    partial = out.with_name(f".partial-{os.getpid()}-{out.name}")
    try:
        partial.mkdir(parents=True)
        exported = _write(run, partial, out, tables, onnx)
        if out.is_dir():
            out.rmdir()
        os.replace(partial, out)
        return exported
    except OSError as error:
        raise cannot_write(error, out) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(run: TrainedRun, folder: Path, out: Path, format: str, onnx: bool) -> Exported:
    dense_width = dense_width_of(run.vocabulary) if run.vocabulary is not None else run.experiment.open_data().dense_features
    model = run.dense_arch(dense_width)
    if model.reads_events:
        remedy = "score with it by mode=predict start_from=RUN"
        raise UserError("times and actions of histories cannot be exported", where="model", given=type(model).__name__, remedy=remedy)
    read = features_read(model, run.plan.tables)
    inputs = raw_inputs(run.vocabulary, read, dense_width)
    if model.objective == "next_item" and inputs.history is None:
        raise UserError("the run kept no items to rank", where=run.record.folder, remedy="train it again on data=interactions or movielens")
    program = program_of(model, run.plan.tables, dense_width)
    torch.export.save(program, folder / PROGRAM_FILE)
    notes = [write_onnx(program, folder / ONNX_FILE)] if onnx else []
    write_tensors(folder / DENSE_FILE, model.state_dict(), {"format": "pt"})
    inputs.write_words(folder / WORDS_FILE)
    written = write_tables(folder, tuple({table.name: table for table in read.values()}.values()), run.reader, format)
    write_json(folder / MODEL_FILE, _about(run, model, inputs, read, written, format))
    for name in SERVE_FILES:
        shutil.copyfile(Path(__file__).with_name("served") / name, folder / name)
    if run.experiment.precision.dense != "fp32":
        notes.append(f"trained in {run.experiment.precision.dense}; the program computes in fp32, and rounds less")
    if any(how["ids"] == "row" for how in inputs.features.values()):
        notes.append("the run kept no raw values: a row has ids of tables, and scaled numbers")
    change = auc_change(run, DenseArch(model), read, format)
    exported = Exported(
        str(out), str(run.checkpoint), format, 0, written.largest_error, written.greatest, change, tuple(note for note in notes if note)
    )
    write_card(folder, run, exported, inputs)
    _copy_config(run.record.folder, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for path in [path for path in folder.iterdir() if path.is_file()]:
        manifest.note(path, manifest.checksum_of(path))
    manifest.write(folder, "")
    return Exported(**{**vars(exported), "bytes": size})


def _copy_config(run: Path, folder: Path) -> None:
    """What `start_from=EXPORT` needs: the run's words and config, and its vocabulary."""
    for name in (CONFIG_FILE, WORDS_OF_RUN):
        if (run / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(run / name, folder / name)
    if (run / VOCABULARY).is_dir():
        shutil.copytree(run / VOCABULARY, folder / VOCABULARY)


def _about(run: TrainedRun, model: ClickModel, inputs: RawInputs, read: dict[str, Table], written: Written, format: str) -> dict[str, Any]:
    features = {
        name: how | {"table": read[name].name, "pooling": read[name].pooling, "dim": read[name].dim}
        for name, how in inputs.features.items()
    }
    tables = {
        table.name: {"rows": table.rows, "dim": table.dim, "format": format, "shards": written.shards[table.name]}
        for table in read.values()
    }
    return {
        "version": VERSION,
        "objective": model.objective,
        "normalised_items": model.next_item is not None and model.next_item.temperature is not None,
        "softmax": model.loss != BINARY,
        "dense": inputs.dense,
        "features": features,
        "words": list(inputs.words),
        "buffers": [name for name, _ in model.named_buffers()],
        "history": inputs.history,
        "tables": tables,
        "run": {"fingerprint": run.experiment.fingerprint, "choices": dict(run.experiment.choices), "seed": run.experiment.seed},
    }


def figures(exported: Exported) -> dict[str, Any]:
    """As plain data."""
    return asdict(exported)
