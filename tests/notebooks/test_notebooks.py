"""The notebooks run from top to bottom, and what is stored in them is what they print.

Execution needs nbclient and a kernel, which `make test-notebooks` brings; elsewhere only what is stored is looked at.
"""

from __future__ import annotations

import copy
import importlib.util
import re

import pytest

from notebooks.execute import HERE, MEASURED, SIMULATED, code_cells, differences, executed, images_of, names, stored, tag_of, texts_of

CAN_EXECUTE = importlib.util.find_spec("nbclient") is not None and importlib.util.find_spec("ipykernel") is not None
NAMES = ["analyse_a_sweep", "plan_and_price"]
MOST_BYTES = 200_000
#: An absolute path of any machine, which also a temporary folder is.
PATHS = re.compile(r"(?<![\w.<:/])/(?:tmp|var|usr|opt|mnt|home|root)/")


def test_these_are_the_notebooks() -> None:
    assert names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_output_is_stored_and_small(name: str) -> None:
    notebook = stored(name)
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run from top to bottom: make notebooks"
    assert [tag_of(cell) for cell in cells if not texts_of(cell)] == []
    assert sum(images_of(cell) for cell in cells) >= 1
    kinds = {(output["output_type"], output.get("name", "stdout")) for cell in cells for output in cell["outputs"]}
    assert kinds <= {("stream", "stdout"), ("execute_result", "stdout"), ("display_data", "stdout")}  # neither errors nor warnings
    assert (HERE / f"{name}.ipynb").stat().st_size < MOST_BYTES
    assert not [text for cell in cells for text in texts_of(cell) if PATHS.search(text)]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_says_at_its_top_which_figures_are_simulated_and_which_measured(name: str) -> None:
    notebook = stored(name)
    top = "".join(notebook["cells"][0]["source"]).lower()
    assert "simulated" in top and "measured" in top
    tags = [tag_of(cell) for cell in code_cells(notebook)]
    assert tags.count(SIMULATED) >= 4
    assert (MEASURED in tags) != ("nothing is measured" in top)


@pytest.mark.parametrize("name", NAMES)
def test_figures_and_their_axes_say_which_they_are(name: str) -> None:
    for cell in code_cells(stored(name)):
        if images_of(cell):
            assert f"({tag_of(cell)}" in "".join(cell["source"])


def test_a_stale_figure_is_found_and_a_measured_one_may_differ() -> None:
    notebook = stored("analyse_a_sweep")
    cells = {tag: next(n for n, cell in enumerate(code_cells(notebook)) if tag_of(cell) == tag) for tag in (MEASURED, SIMULATED)}
    assert differences(notebook, notebook) == []
    for tag, number in cells.items():
        other = copy.deepcopy(notebook)
        output = code_cells(other)[number]["outputs"][0]
        output["data"]["text/plain"] = ["7.6321"]
        assert len(differences(notebook, other)) == (tag == SIMULATED)
        code_cells(other)[number]["outputs"] = []
        assert differences(notebook, other)


@pytest.mark.skipif(not CAN_EXECUTE, reason="nbclient is not installed: make test-notebooks brings it")
@pytest.mark.timeout(2400)  # of a busy machine: a cell trains four models
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_prints_what_is_stored(name: str) -> None:
    assert differences(stored(name), executed(name)) == []
