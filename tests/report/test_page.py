"""The page: everything a run left is on it, what is absent is said, and nothing is asked of anywhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from recsys_lab.errors import UserError
from recsys_lab.report import plots
from recsys_lab.report.page import write_page
from recsys_lab.report.svg import nice_bytes, nice_ticks
from tests.record.fake_run import failed, make_config, make_plan, make_result, write_run

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Text, tags and attributes; fails where tags do not close in order."""

    def __init__(self, page: str):
        super().__init__()
        self.open, self.words, self.attributes, self.tags = [], [], [], set()
        self.feed(page)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(folder) -> tuple[str, Reader]:
    text = write_page(folder).read_text()
    return text, Reader(text)


def test_a_whole_run_is_shown_with_the_origin_of_every_figure(tmp_path):
    text, read = page_of(write_run(tmp_path / "run"))
    for words in ("AUC, validation 0.7731 measured", "best reachable AUC, validation 0.7812 planted truth"):
        assert words in read.text
    assert "examples per second 41,250 measured, 4 processes here" in read.text
    assert re.search(r"examples per second 109,226,667 simulated, h100x64", read.text)
    assert "measured: 23.6 ms an iteration on average, median 24.8 ms" in read.text and "simulated: 2.400 ms an iteration" in read.text
    assert "Collectives (measured)" in read.text and "Collectives (simulated)" in read.text
    for table in make_plan(8, 8).tables:
        assert table.name in read.text
    assert text.count("<svg") == 7  # curve, two plans and their maps, two iterations
    assert "cluster: name: h100x64" in read.text and "torchrec 1.8" in read.text


@pytest.mark.parametrize("make", [make_result, lambda: make_result("simulate"), lambda: make_result("plan"), lambda: failed(make_result())])
def test_the_page_asks_nothing_of_anywhere(tmp_path, make):
    text, read = page_of(write_run(tmp_path / "run", make()))
    assert not {"script", "link", "img", "iframe", "object", "form"} & read.tags
    assert not [a for a in read.attributes if a[0] in ("src", "href", "action", "srcset", "background") or a[0].startswith("on")]
    assert "url(" not in text and "@import" not in text and "://" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("simulate", ["not trained: mode=simulate", "not evaluated: mode=simulate"]),
        ("plan", ["not trained: mode=plan", "not simulated: mode=plan"]),
        ("train", ["not simulated: mode=train"]),
    ],
)
def test_absent_parts_are_said(tmp_path, mode, said):
    _, read = page_of(write_run(tmp_path / "run", make_result(mode)))
    for words in said:
        assert words.lower() in read.text.lower()
    assert " nan" not in read.text.lower() and "None" not in read.text.replace("none", "")


def test_a_failed_run_names_its_reason(tmp_path):
    _, read = page_of(write_run(tmp_path / "run", failed(make_result())))
    assert "The run failed. UserError: split validation has only label 0" in read.text


def test_a_run_without_plan_config_or_environment_still_has_a_page(tmp_path):
    folder = write_run(tmp_path / "run", failed(make_result()))
    for name in ("plan.json", "config.yaml", "environment.json"):
        (folder / name).unlink()
    _, read = page_of(folder)
    assert "No plan.json" in read.text and "no config.yaml" in read.text and "no environment.json" in read.text


def test_words_from_the_run_cannot_become_markup(tmp_path):
    _, read = page_of(write_run(tmp_path / "run", failed(make_result(), "<script>alert(1)</script> & more")))
    assert "script" not in read.tags and "<script>alert(1)</script> & more" in read.text
    assert make_config(make_result())["cluster"]["device"]["name"] == "H100 <SXM5>" in read.text


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no result\.json here"):
        write_page(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_broken_plan_is_one_line(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "plan.json").write_text('{"sharder": "torchrec"}')
    with pytest.raises(UserError, match="plan.json: unknown schema of a plan"):
        write_page(folder)


def bars(picture: str) -> list[tuple[str, float]]:
    """(words, height) of every bar that has words."""
    root = ElementTree.fromstring(picture)
    return [(rect[0].text, float(rect.get("height"))) for rect in root.iter("rect") if len(rect)]


def test_the_plans_picture_has_every_rank_as_high_as_its_weights():
    plan = make_plan(2, 4)
    held = plan.weight_bytes_of_ranks()
    height = dict.fromkeys(range(8), 0.0)
    for words, tall in bars(plots.plan_picture(plan)):
        height[int(words.split(",")[0].removeprefix("rank "))] += tall
    per_byte = height[0] / held[0]
    for rank in range(8):
        assert height[rank] == pytest.approx(per_byte * held[rank], abs=0.05), rank


def test_beyond_128_ranks_a_bar_is_a_host():
    plan = make_plan(128, 8)
    names = {words.split(",")[0] for words, _ in bars(plots.plan_picture(plan))}
    assert names == {f"host {h}" for h in range(128)}


def test_the_limit_is_drawn_where_the_weights_come_near_it():
    plan = make_plan(2, 2)
    most = max(plan.weight_bytes_of_ranks())
    assert 'class="limit"' in plots.plan_picture(plan, limit_bytes=most * 2)
    assert 'class="limit"' not in plots.plan_picture(plan, limit_bytes=most * 100)
    assert "1.0%" in plots.plan_picture(plan, limit_bytes=most * 100, fullest_bytes=most)


def test_the_iterations_bar_is_divided_as_its_phases():
    drawn = plots.iteration_bar({"forward": 2.0, "backward": 6.0}, 10.0, "measured")
    root = ElementTree.fromstring(drawn)
    widths = {rect[0].text.split(":")[0]: float(rect.get("width")) for rect in root.iter("rect") if len(rect)}
    assert widths["backward"] == pytest.approx(3 * widths["forward"], abs=0.05)
    assert widths["in no phase"] == pytest.approx(widths["forward"], abs=0.05)


def test_no_curve_without_figures_and_one_point_is_enough():
    empty = {"step": 1.0, "train_loss": None, "validation_auc": None}
    assert plots.learning_curve([]) is None and plots.learning_curve([empty]) is None
    ElementTree.fromstring(plots.learning_curve([{"step": 1.0, "train_loss": 0.5, "validation_auc": None}]))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.7312, 0.7345), (-3, 1e9), (5, 5), (0, 0)])
def test_ticks_span_the_range_with_few_round_numbers(low, high):
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8 and ticks == sorted(set(ticks))
    assert nice_bytes(high)[-1] >= high
