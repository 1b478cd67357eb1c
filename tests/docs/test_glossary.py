"""Words that commands and reports print, and that no practitioner need know, stand in docs/glossary.md, each once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from docs.generator.config_pages import loaded
from recsys_lab.config.choices import built
from recsys_lab.doctor.versions import triple_rows
from recsys_lab.simulate.phases import PHASES, exposed_phases
from recsys_lab.simulate.profile import Profile
from tests.docs.pages import ROOT

_ROW = re.compile(r"^\| (?!word \||---)(.+?) \| ", re.MULTILINE)
WORDS = [word for row in _ROW.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")) for word in row.split(", ")]


def test_a_word_is_explained_once() -> None:
    assert len(WORDS) > 60 and not [word for word, times in Counter(WORDS).items() if times > 1]


@pytest.mark.parametrize("phase", sorted({*PHASES, *exposed_phases([])}))
def test_every_phase_of_an_iteration_is_there(phase: str) -> None:
    assert phase in WORDS


def test_the_profile_of_a_pipeline_is_there() -> None:
    profile = built("profile", "torchrec")
    assert isinstance(profile, Profile) and profile.pipelined is not profile
    assert profile.pipelined.name in WORDS
    assert loaded(ROOT / "conf", "sharder", "torchrec_strong").executor.pipeline is True


@pytest.mark.parametrize("word", [triple_rows()[-1].name, "planted truth", "extrapolates", "executor", "workload", "flat model"])
def test_words_of_reports_are_there(word: str) -> None:
    assert word in WORDS
