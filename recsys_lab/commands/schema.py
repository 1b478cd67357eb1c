"""`python -m recsys_lab schema --out DIR`: JSON Schema of the YAML files of conf/, with which an editor completes and checks them."""

from __future__ import annotations

import json

from recsys_lab.base import paths
from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_folder, write_text
from recsys_lab.config.json_schema import documents, name_of, vscode_settings

SETTINGS = "vscode_settings.json"


def main(argv: list[str]) -> int:
    """Writes a schema for each kind of file, and the setting of VS Code, which it prints."""
    line = parser("schema", "JSON Schema of the YAML files of conf/ and of your own conf folder, for an editor.")
    line.add_argument("--out", required=True, metavar="DIR", help="where the schemas go; made if it is not there")
    folder = out_folder(line.parse_args(argv).out, "--out")
    schemas = documents(paths.CONF)
    for files, schema in schemas.items():
        write_text(folder / name_of(files), json.dumps(schema, indent=1) + "\n")
    settings = json.dumps(vscode_settings(folder.as_posix(), schemas), indent=2)
    write_text(folder / SETTINGS, settings + "\n")
    print(settings)
    return 0
