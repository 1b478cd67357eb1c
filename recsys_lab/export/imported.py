"""Weights of another program become a run to start from: by name and shape, or by a mapping of names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from recsys_lab.base.files import read_text, write_json
from recsys_lab.config.command_line import read_run
from recsys_lab.config.folders import save_hydra
from recsys_lab.config.frozen import plain, save
from recsys_lab.errors import UserError, cannot_write, did_you_mean
from recsys_lab.experiment import resolve
from recsys_lab.export.trained_run import TABLES
from recsys_lab.models.click_model import ClickModel
from recsys_lab.train import checkpoint_folder
from recsys_lab.train.blocks import BlockReader
from recsys_lab.train.checkpoint import save as save_checkpoint
from recsys_lab.train.checkpoint import whole
from recsys_lab.train.foreign import foreign_blocks


@dataclass(frozen=True)
class Imported:
    """What came in.

    Attributes:
        folder: of the run to start from.
        taken: by tensor of the model, the name that it had.
        unused: names that no tensor of the model has.
    """

    folder: str
    taken: Mapping[str, str]
    unused: Sequence[str]


def import_weights(source: Path, out: Path, words: Sequence[str], mapping: Path | None = None) -> Imported:
    """Writes the run `out`, of the model that `words` describe, with the weights in `source`. They fit into memory.

    Args:
        source: a checkpoint of torch.distributed.checkpoint.
        out: a new folder.
        words: as for run.py, of a sharder without tower modules.
        mapping: YAML or JSON, names of ours to names of theirs.

    Returns:
        What came in.

    Raises:
        UserError: a tensor of the model has no weights there, or of another shape.
    """
    if out.exists():
        raise UserError("the folder is there already", where=out, remedy="name a new one: --out DIR")
    run = read_run([*words, f"hydra.run.dir={out}"], "import")
    experiment = resolve(run.config)
    if experiment.sharder.tower_modules:
        remedy = "name one without tower modules; towers can start from it afterwards"
        raise UserError("towers depend on a plan", where="sharder", given=experiment.choices["sharder"], remedy=remedy)
    data = experiment.open_data()
    model = experiment.with_default_hyperparameters(data).build_model(data, torch.device("meta"))
    shapes = {f"table.{table.name}.weight": (table.rows, table.dim) for table in experiment.tables(data)} | _dense_shapes(model)
    reader = BlockReader(source, foreign_blocks(source))
    names = _names(shapes, reader, _mapping(mapping, shapes, reader))
    pieces = []
    for key, shape in shapes.items():
        tensor = torch.empty(shape)
        reader.fill(whole(names[key], tensor))
        pieces.append(whole(key, tensor))
    partial = out.with_name(f".partial-{os.getpid()}-{out.name}")
    try:
        save_checkpoint(partial / checkpoint_folder.FOLDER / "step=0", pieces, {"imported": str(source)}, 0, lambda: None)
        assert run.composed is not None
        save_hydra(partial, run.composed, run.overrides)
        save(plain(run.config), partial)
        write_json(partial / "imported.json", {"from": str(source), "taken": names})
        os.replace(partial, out)
    except OSError as error:
        raise cannot_write(error, out) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Imported(str(out), names, sorted(set(reader.keys()) - set(names.values())))


def _dense_shapes(model: ClickModel) -> dict[str, tuple[int, ...]]:
    kinds: tuple[tuple[str, Any], ...] = (("dense", model.named_parameters()), ("buffer", model.named_buffers()))
    return {f"{kind}.{name}": tuple(tensor.shape) for kind, of in kinds for name, tensor in of if not name.startswith(TABLES + ".")}


def _mapping(file: Path | None, shapes: Mapping[str, Any], reader: BlockReader) -> dict[str, str]:
    """The names in `file`. UserError for one that the model or the checkpoint does not have."""
    if file is None:
        return {}
    try:
        names = yaml.safe_load(read_text(file, "name a file of names: OURS: THEIRS"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"not YAML: {error}", where=file, remedy="write lines such as table.user.weight: model.user.weight") from None
    if not isinstance(names, dict) or not all(isinstance(name, str) for pair in names.items() for name in pair):
        raise UserError("no mapping of names", where=file, allowed="lines such as table.user.weight: model.user.weight")
    for ours, theirs in names.items():
        for name, known, whose in ((ours, list(shapes), "the model"), (theirs, list(reader.keys()), "the checkpoint")):
            if name not in known:
                raise UserError(f"{whose} has no such tensor", where=file, given=name, remedy=did_you_mean(name, known))
    return names


def _names(shapes: Mapping[str, tuple[int, ...]], reader: BlockReader, mapping: Mapping[str, str]) -> dict[str, str]:
    """By tensor of the model, the name in the checkpoint. Raises UserError for the first that is not there, or has another shape."""
    names = {key: mapping.get(key) or _name_of(key, reader) for key in shapes}
    for key, theirs in names.items():
        if (has := reader.shape(theirs)) != shapes[key]:
            given = f"{has} in {theirs}, {shapes[key]} in the model"
            raise UserError(
                "the shapes differ", where=key, given=given, remedy="change the model's words, or map another name: --mapping FILE"
            )
    return names


def _name_of(key: str, reader: BlockReader) -> str:
    """The same name, or the only one that ends in it: `model.ebc.embedding_bags.user.weight` for `table.user.weight`."""
    if key in reader:
        return key
    end = key.partition(".")[2]
    ending = [name for name in reader.keys() if f".{name}".endswith(f".{end}")]
    if len(ending) != 1:
        given = f"{len(ending)} names end in {end}" + (f": {', '.join(ending[:4])}" if ending else "")
        remedy = did_you_mean(end, list(reader.keys())) if not ending else None
        hint = f"say which: --mapping FILE with a line {key}: NAME"
        raise UserError("no one name of the checkpoint fits", where=key, given=given, remedy=f"{remedy}; {hint}" if remedy else hint)
    return ending[0]
