"""CITATION.cff is valid by the schema of its format. It names this version and the four papers; the changelog begins with this version."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, FormatChecker

import recsys_lab

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests" / "package" / "cff" / "schema-1.2.0.json").read_text())
PAPERS = {"2301.02959": "flexshard", "2403.00877": "dmt", "2104.05158": "neo", "2005.04680": "cpu_dlrm"}


@pytest.fixture
def citation() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_it_is_valid_by_the_formats_schema(citation: dict[str, Any]) -> None:
    validator = Draft7Validator(SCHEMA, format_checker=FormatChecker())
    assert [error.message for error in validator.iter_errors(citation)] == []
    assert SCHEMA["$id"].endswith(f"/{citation['cff-version']}/schema.json")
    for broken in ({"references": [{"title": "x"}]}, {"licence": "Apache-2.0"}, {"license": "Apache"}, {"authors": []}):
        assert not validator.is_valid(citation | broken)


def test_it_names_this_version_and_licence(citation: dict[str, Any]) -> None:
    assert str(citation["version"]) == recsys_lab.__version__
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text()


def test_the_four_papers_are_its_references_by_the_titles_of_their_studies(citation: dict[str, Any]) -> None:
    named = {paper["url"].rpartition("/")[2]: paper for paper in citation["references"]}
    assert set(named) == set(PAPERS)
    for number, folder in PAPERS.items():
        page = " ".join((ROOT / "experiments" / folder / "README.md").read_text().split())
        title = re.search(r"\*([^*]{40,})\*,", page)
        assert number in page or (title and title[1] == named[number]["title"]), folder
        assert named[number]["authors"][0]["family-names"] and 2020 <= named[number]["year"] <= 2024


def test_the_changelog_begins_with_this_version_in_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (?:not released|\d{4}-\d{2}-\d{2})$", text, re.MULTILINE)
    assert versions[0] == recsys_lab.__version__ and versions == sorted(versions, reverse=True)
    assert len(versions) == text.count("\n## ") - ("\n## [Unreleased]\n" in text)
    for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", section, re.MULTILINE)
        order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        assert kinds and kinds == [kind for kind in order if kind in kinds]
