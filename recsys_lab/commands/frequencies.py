"""`python -m recsys_lab frequencies data=... -o FILE`: how often each row is looked up, counted into a file to plan with."""

from __future__ import annotations

import json

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_file
from recsys_lab.config.no_run_folder import check_no_run_folder
from recsys_lab.errors import UserError


def main(argv: list[str]) -> int:
    """Writes the file. UserError for what cannot be read or written."""
    line = parser("frequencies", "Count how often the train split looks each row up, into a file for data.frequencies=FILE.")
    line.add_argument("overrides", nargs="+", help="as for run.py: data=..., data.root=..., model=...")
    line.add_argument("-o", "--out", required=True, metavar="FILE", help="the .npz to write")
    line.add_argument("--rows", type=int, default=None, help="count the first ROWS samples only")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    options = line.parse_intermixed_args(argv)
    if options.rows is not None and options.rows < 1:
        raise UserError("too small", where="--rows", given=options.rows, allowed="1 or more")
    check_no_run_folder(options.overrides, "frequencies", None, "--out FILE says where to write")
    from recsys_lab.data.frequencies import save_frequencies  # with torch, which neither help nor a mistake needs
    from recsys_lab.experiment import of_words

    experiment = of_words(options.overrides, where="frequencies")
    path = out_file(options.out, "--out", (".npz",))
    samples = save_frequencies(path, experiment.open_data(), options.rows)
    print(json.dumps({"file": str(path), "samples": samples}) if options.json else f"{path}: row frequencies of {samples:,} samples")
    return 0
