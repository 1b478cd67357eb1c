"""`python -m recsys_lab import FROM --out RUN overrides...`: weights that TorchRec or another program saved, as a run to start from."""

from __future__ import annotations

import json
from dataclasses import asdict

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_folder, path_of
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config.no_run_folder import check_no_run_folder

MOST_NAMED = 8


def main(argv: list[str]) -> int:
    """Writes the run, and says which names its tensors had. UserError for the first that is missing, or has another shape."""
    line = parser("import", "Weights saved by torch.distributed.checkpoint (TorchRec's, for one), as a run: start_from=RUN.")
    line.add_argument("source", metavar="FROM", help="a folder with .metadata and *.distcp, or with *.safetensors")
    line.add_argument("overrides", nargs="+", help="the model and its data, as for run.py: model=dcn data=table data.root=...")
    line.add_argument("-o", "--out", required=True, metavar="RUN", help="a new folder")
    line.add_argument("--mapping", metavar="FILE", help="YAML or JSON, OURS: THEIRS for each name that differs")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    options = line.parse_intermixed_args(argv)
    check_no_run_folder(options.overrides, "import", None, "--out RUN says where to write")
    out, mapping = out_folder(options.out, "--out"), None if options.mapping is None else path_of(options.mapping, "--mapping")
    quiet_torchrec()
    from recsys_lab.export.imported import import_weights  # with torch, which neither help nor a mistake needs

    imported = import_weights(path_of(options.source, "FROM"), out, options.overrides, mapping)
    if options.json:
        print(json.dumps(asdict(imported)))
        return 0
    print(f"{imported.folder}: {len(imported.taken)} tensors; go on with: python run.py start_from={imported.folder}")
    for ours, theirs in imported.taken.items():
        if ours != theirs:
            print(f"{ours}: {theirs}")
    if imported.unused:
        more = f" and {len(imported.unused) - MOST_NAMED} more" if len(imported.unused) > MOST_NAMED else ""
        print(f"not used: {', '.join(imported.unused[:MOST_NAMED])}{more}")
    return 0
