"""`python -m notebooks.execute [NAME ...]`: runs the notebooks here from top to bottom and stores what they print.

`make notebooks` calls it. A code cell's tag says what its figures are: `simulated` ones are the same on every machine, `measured` ones
are of the machine that ran it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MEASURED, SIMULATED = "measured", "simulated"
#: Of a stored output, what is compared: an image depends on fonts.
TEXTS = ("text/plain", "text/html", "text/markdown")

Notebook = dict[str, Any]


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.ipynb"))


def stored(name: str) -> Notebook:
    notebook: Notebook = json.loads((HERE / f"{name}.ipynb").read_text(encoding="utf-8"))
    return notebook


def executed(name: str, timeout_s: int = 1800) -> Notebook:
    """The notebook run again in a kernel of its own. nbclient's CellExecutionError for the first cell that fails."""
    import nbformat
    from nbclient import NotebookClient

    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    notebook = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=timeout_s, startup_timeout=timeout_s, kernel_name="python3", record_timing=False)
    client.execute(env=os.environ | {"PYTHONPATH": path})
    return dict(json.loads(nbformat.writes(notebook)))


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def tag_of(cell: dict[str, Any]) -> str | None:
    """`measured`, `simulated`, or None of a cell that shows no figures of either kind."""
    return next((tag for tag in cell["metadata"].get("tags", []) if tag in (MEASURED, SIMULATED)), None)


def texts_of(cell: dict[str, Any]) -> list[str]:
    """Everything that the cell prints or shows as text."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        found += [_joined(output["text"])] if "text" in output else [_joined(data[kind]) for kind in TEXTS if kind in data]
    return found


def images_of(cell: dict[str, Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


def differences(before: Notebook, after: Notebook) -> list[str]:
    """What `after` shows otherwise than `before`; measured cells must only show as much."""
    found = []
    for number, (ours, theirs) in enumerate(zip(code_cells(before), code_cells(after), strict=True), start=1):
        if tag_of(ours) != MEASURED and texts_of(ours) != texts_of(theirs):
            found.append(f"code cell {number}: stored {texts_of(ours)}, now {texts_of(theirs)}")
        if (len(texts_of(ours)), images_of(ours)) != (len(texts_of(theirs)), images_of(theirs)):
            found.append(f"code cell {number}: shows another number of texts or images")
    return found


def main(chosen: list[str]) -> None:
    for name in chosen or names():
        text = json.dumps(executed(name), indent=1, ensure_ascii=False) + "\n"
        (HERE / f"{name}.ipynb").write_text(text, encoding="utf-8")
        print(f"executed notebooks/{name}.ipynb, {len(text) / 1e3:.0f} kB")


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


if __name__ == "__main__":
    main(sys.argv[1:])
