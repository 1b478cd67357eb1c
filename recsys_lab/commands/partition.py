"""`python -m recsys_lab partition RUN|overrides...`: features into towers: which belong together, found on a short training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_file, path_of
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config.no_run_folder import check_no_run_folder
from recsys_lab.errors import UserError
from recsys_lab.partition import CHOICES, DIMS, SAMPLES, STEPS
from recsys_lab.sharders.dmt.names import ABSOLUTES

if TYPE_CHECKING:
    from recsys_lab.sharders.dmt.partition_file import Partition


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
    line.add_argument(
        "--absolute",
        default=ABSOLUTES[0],
        metavar="A",
        help=f"{', '.join(ABSOLUTES)}: where an absolute value makes a cosine an affinity (default {ABSOLUTES[0]}, as the paper)",
    )
    line.add_argument("--steps", type=int, default=STEPS, help=f"batches that the probe trains (default {STEPS})")
    line.add_argument("--samples", type=int, default=SAMPLES, help=f"samples that the affinity is the mean of (default {SAMPLES:,})")
    line.add_argument("--picture", metavar="FILE", help="draw it, as the paper's figure 9: .svg, .png or .pdf")
    line.add_argument("--compare", metavar="FILE", help="another partition: how far the two agree")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    options = line.parse_intermixed_args(argv)
    for name in ("steps", "samples", "towers"):
        if getattr(options, name) < 1:
            raise UserError("too small", where=f"--{name}", given=getattr(options, name), allowed="1 or more")
    if options.absolute not in ABSOLUTES:
        raise UserError("no such affinity", where="--absolute", given=options.absolute, allowed=", ".join(ABSOLUTES))
    check_no_run_folder(options.what, "partition", None, "--out FILE says where to write")
    from recsys_lab.partition.find import summary  # with torch, which neither help nor a mistake needs
    from recsys_lab.partition.picture import SUFFIXES, draw
    from recsys_lab.partition.source import partition_from, source_of
    from recsys_lab.sharders.dmt.partition_file import load_partition

    other = None if options.compare is None else load_partition(path_of(options.compare, "--compare"))
    quiet_torchrec()
    path = out_file(options.out, "--out", (".json",))
    picture = None if options.picture is None else out_file(options.picture, "--picture", SUFFIXES)
    for file in (path, picture):
        if file is not None and not file.parent.is_dir():
            raise UserError("no such folder", where=file.parent, remedy="make it, or name another")
    source = source_of(options.what, options.steps)
    partition, between = partition_from(
        source,
        options.towers,
        strategy=options.strategy,
        dims=options.dims,
        size_ratio=options.ratio,
        samples=options.samples,
        absolute=options.absolute,
    )
    if picture is not None:
        draw(partition, picture)
    partition.save(path)
    figures = {"file": str(path), **summary(partition, between, source.data, other)}
    if options.json:
        print(json.dumps(figures))
    else:
        say(partition, figures)
    return 0


def say(partition: Partition, figures: dict[str, Any]) -> None:
    for number, tower in enumerate(partition.towers):
        print(f"tower {number}: {' '.join(tower)}")
    print(f"affinity: {figures['affinity_within']:.3f} within a tower, {figures['affinity_across']:.3f} across")
    print(f"balance: {min(partition.balance['tables'])} to {max(partition.balance['tables'])} tables a tower; ", end="")
    print(f"most look-up bytes of a tower {partition.balance['load_over_mean']:.2f} times the mean")
    for key, of in (("agreement", "the other partition"), ("agreement_with_planted", "the planted groups")):
        if key in figures:
            print(f"adjusted Rand index with {of}: {figures[key]:.3f}")
    print(f"{figures['file']}: use it with sharder=dmt sharder.towers.partition={figures['file']}")
