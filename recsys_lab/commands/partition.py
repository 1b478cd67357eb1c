"""`python -m recsys_lab partition RUN|overrides... --towers T -o FILE`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig

from recsys_lab.arguments import parser
from recsys_lab.config import command_line
from recsys_lab.config.frozen import load
from recsys_lab.data.batch import DataSet
from recsys_lab.errors import UserError
from recsys_lab.inputs import tables_of
from recsys_lab.models.click_model import ClickModel
from recsys_lab.partition import probe
from recsys_lab.partition.find import CHOICES, DIMS, check, coherence, find
from recsys_lab.partition.picture import check_suffix, draw
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.sharders.dmt.affinity import affinity, one_thread
from recsys_lab.sharders.dmt.partition_file import Partition, adjusted_rand_index, load_partition

STEPS, SAMPLES = 500, 16_384


def main(argv: list[str]) -> int:
    """Finds the towers, writes the file, says how good they are. UserError for what cannot be read, trained or written."""
    line = parser(
        "partition",
        "Features into towers of DMT: alike ones together (coherent) or apart (diverse), found on a short training of a model, "
        "or on the weights of a run. Use the file with sharder=dmt sharder.towers.partition=FILE.",
    )
    line.add_argument("what", nargs="+", metavar="RUN|OVERRIDE", help="a run folder; or as for run.py: model=dlrm data=...")
    line.add_argument("-o", "--out", required=True, metavar="FILE", help="the .json to write")
    line.add_argument("--towers", type=int, required=True, metavar="T")
    line.add_argument("--strategy", default="coherent", metavar="S", help=f"{', '.join(CHOICES)} (default coherent)")
    line.add_argument("--ratio", type=float, default=1.0, metavar="R", help="tables of the largest tower over the smallest's (default 1)")
    line.add_argument(
        "--dims",
        type=int,
        default=DIMS,
        metavar="N",
        help=f"dimensions that features are laid out in (default {DIMS}; the paper's 2 tell few towers apart)",
    )
    line.add_argument("--steps", type=int, default=STEPS, help=f"batches that the probe trains (default {STEPS})")
    line.add_argument("--samples", type=int, default=SAMPLES, help=f"samples that the affinity is the mean of (default {SAMPLES:,})")
    line.add_argument("--picture", metavar="FILE", help="draw it, as the paper's figure 9: .svg, .png or .pdf")
    line.add_argument("--compare", metavar="FILE", help="another partition: how far the two agree")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    given = line.parse_args(argv)
    for name in ("steps", "samples", "towers"):
        if getattr(given, name) < 1:
            raise UserError("too small", where=f"--{name}", given=getattr(given, name), allowed="1 or more")
    other = load_partition(Path(given.compare).expanduser()) if given.compare else None
    quiet_torchrec()
    path = Path(given.out).expanduser()
    picture = Path(given.picture).expanduser() if given.picture else None
    for file in (path, picture):
        if file is not None and not file.parent.is_dir():
            raise UserError("no such folder", where=file.parent, remedy="make it, or name another")
    if picture is not None:
        check_suffix(picture)
    with one_thread():
        config, data, model, source = _probe(given.what, given.steps)
        tables = tables_of(data, config.model.embedding_dim, "fp32")
        check(tables, given.towers, given.strategy, given.dims, given.ratio)
        between = affinity(probe.embeddings(model(), data, given.samples))
    made = find(
        between,
        data,
        tables,
        given.towers,
        strategy=given.strategy,
        dims=given.dims,
        size_ratio=given.ratio,
        seed=config.seed,
        source=source | {"samples": min(given.samples, data.splits["train"].rows)},
    )
    if picture is not None:
        draw(made, picture)
    made.save(path)
    within, across = coherence(between, made.features, made.towers)
    told = {"file": str(path), "towers": made.towers, "balance": made.balance, "affinity_within": within, "affinity_across": across}
    if other is not None:
        told["agreement"] = adjusted_rand_index(made.towers, other.towers)
    if planted := getattr(data, "groups", ()):
        told["agreement_with_planted"] = adjusted_rand_index(made.towers, planted)
    if given.json:
        print(json.dumps(told))
    else:
        say(made, told)
    return 0


def say(made: Partition, told: dict) -> None:
    for number, tower in enumerate(made.towers):
        print(f"tower {number}: {' '.join(tower)}")
    print(f"affinity: {told['affinity_within']:.3f} within a tower, {told['affinity_across']:.3f} across")
    print(f"balance: {min(made.balance['tables'])} to {max(made.balance['tables'])} tables a tower; ", end="")
    print(f"most look-up bytes of a tower {made.balance['load_over_mean']:.2f} times the mean")
    for key, of in (("agreement", "the other partition"), ("agreement_with_planted", "the planted groups")):
        if key in told:
            print(f"adjusted Rand index with {of}: {told[key]:.3f}")
    print(f"{told['file']}: use it with sharder=dmt sharder.towers.partition={told['file']}")


def _probe(what: list[str], steps: int) -> tuple[DictConfig, DataSet, Callable[[], ClickModel], dict]:
    """The config, the data, what gives a model whose tables know them, and where that is from."""
    if "=" not in what[0]:
        if len(what) > 1:
            raise UserError("a run has its own config", where="partition", given=what[1], remedy="name the run folder alone")
        folder = Path(what[0]).expanduser()
        config = load(folder)
        model, data = probe.of_run(folder, config)
        return config, data, lambda: model, {"run": folder.resolve().name, "model": config.choices.model}
    config = command_line.read(what).config
    if config is None:
        raise UserError("one run is needed, not a sweep", where="partition", given=" ".join(what))
    data = probe.opened(config)
    source = {"model": config.choices.model, "steps": steps, "batch_size": config.data.batch_size}
    return config, data, lambda: probe.trained(config, data, steps, config.seed), source
