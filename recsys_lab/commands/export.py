"""`python -m recsys_lab export RUN --out DIR`: a trained model as a folder that serves without this package."""

from __future__ import annotations

import json

from recsys_lab.base.arguments import parser
from recsys_lab.base.export_files import FORMATS
from recsys_lab.base.files import out_folder, path_of
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.errors import UserError


def main(argv: list[str]) -> int:
    """Writes the folder, and says what the format of the tables costs. UserError for what cannot be read, traced or written."""
    line = parser("export", "A trained model as a folder: program, tables, vocabulary, a card, and serve.py, which scores raw rows.")
    line.add_argument("run", metavar="RUN", help="the folder of a run that has trained")
    line.add_argument("words", nargs="*", metavar="WORD", help="hydra.searchpath=[file://CONF], where the run has code of your own")
    line.add_argument("-o", "--out", required=True, metavar="DIR", help="a new folder")
    line.add_argument("--tables", default=FORMATS[0], metavar="FORMAT", help=f"{', '.join(FORMATS)}: of the tables' numbers (default fp32)")
    line.add_argument("--onnx", action="store_true", help="write the dense arch for ONNX too")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    options = line.parse_intermixed_args(argv)
    if options.tables not in FORMATS:
        raise UserError("no such format", where="--tables", given=options.tables, allowed=", ".join(FORMATS))
    out = out_folder(options.out, "--out")
    quiet_torchrec()
    from recsys_lab.export.card import accuracy  # with torch, which neither help nor a mistake needs
    from recsys_lab.export.export import export_run, figures

    exported = export_run(path_of(options.run, "RUN"), out, options.tables, options.onnx, options.words)
    if options.json:
        print(json.dumps(figures(exported)))
        return 0
    print(f"{exported.folder}: weights of {exported.checkpoint}, tables in {exported.tables}, {exported.bytes / 1e6:,.1f} MB")
    print(*accuracy(exported), *exported.notes, sep="\n")
    return 0
