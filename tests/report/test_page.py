"""The page: everything a run left is on it, what is absent is said, and nothing is asked of anywhere."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest

from recsys_lab.cluster import Price
from recsys_lab.errors import UserError
from recsys_lab.report import plots
from recsys_lab.report.advice import small_words
from recsys_lab.report.charts import chart, drawing, element, tip
from recsys_lab.report.memory import MEMORY, MEMORY_PARTS
from recsys_lab.report.page import CONTENTS, write_page
from recsys_lab.simulate.simulated import Interval
from recsys_lab.units import human_bytes
from tests.record.fake_run import failed, make_config, make_plan, make_result, write_run
from tests.report.drawn import tips, words

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


def test_a_page_is_headed_by_what_ran_not_by_its_folder(tmp_path):
    text, read = page_of(write_run(tmp_path / "first_try"))
    choices = make_result().choices
    assert f"<h1>{choices['model']} under {choices['sharder']} on {choices['cluster']}</h1>" in text
    assert "first_try: completed, mode=auto" in read.text


def test_simulated_cards_stand_apart_and_the_interval_fits_its_card(tmp_path):
    result = make_result()
    assert result.simulated is not None
    wide = Interval(2.981, 6.476)
    simulated = replace(result.simulated, interval_ms=wide, extrapolates="fitted on 1 host of A100; this is 8 hosts of H100")
    text, read = page_of(write_run(tmp_path / "run", replace(result, simulated=simulated)))
    measured, apart = (part.split("</div></div></div>")[0] for part in text.split('<div class="cards">')[1:3])
    assert "simulated" not in measured and "measured" not in apart
    assert '<div class="value">2.981–6.476 ms</div>' in apart and "fitted on" not in apart
    assert "The interval is wide, since the profile was fitted on 1 host of A100; this is 8 hosts of H100." in read.text


def test_a_simulation_opens_with_time_dollars_memory_and_its_bound(tmp_path):
    """Two sentences of advice follow; there is nothing of a training, and the config is folded."""
    result = make_result("simulate")
    assert result.simulated is not None and result.plan is not None and result.plan.fullest_bytes is not None
    bounds = {"links between hosts": 0.8, (host := "host launches and overhead"): 0.3}
    price = Price(2.5, "list price of 2026-09-20")
    simulated = replace(result.simulated, bound_by=bounds, cost_per_billion_samples=12.5, price=price)
    text, read = page_of(write_run(tmp_path / "run", replace(result, simulated=simulated)))
    first = " ".join(re.sub("<[^>]*>", " ", text.split('<div class="cards">')[1].split("<p>")[0]).split())
    held = f"{result.plan.fullest_bytes / 1e9:.1f} of 80 GB"
    found = [first.index(words) for words in ("iteration 2.400 ms", "12.50 $", f"{MEMORY} {held}", "bound by links between hosts")]
    assert found == sorted(found) and "2.50 $ a device-hour (list price of 2026-09-20)" in first and "33% less time" in first
    assert f"The iteration is bound by links between hosts: at twice the speed it takes 33% less time; next comes {host}, 12%." in read.text
    assert "FP16 exchanges (precision=fp16_comms)" in read.text and "simulated: what twice the speed would save" in read.text
    assert "evaluated" not in read.text and 'id="quality"' not in text and '"#quality"' not in text and "(measured)" not in read.text
    assert "<details><summary>All keys</summary><pre>" in text
    assert f"{MEMORY} {held}: {MEMORY_PARTS}" in read.text and f"{MEMORY}: {held}" in read.text  # one definition wherever it stands


def test_a_model_far_too_small_for_its_cluster_has_a_line(tmp_path):
    result = make_result("simulate", sharder="dmt")
    assert result.simulated is not None
    small = replace(result.simulated, bound_by={"host launches and overhead": 1.068}, torchrec_ms=1.8)
    _, read = page_of(write_run(tmp_path / "run", replace(result, simulated=small)))
    plan = replace(make_plan(8, 8), towers=(("a",), ("b",)))
    said = small_words(asdict(small), plan, result.choices)
    size = human_bytes(sum(table.weight_bytes for table in plan.tables))
    words = f"89% host launches and overhead: {size} of tables on 64 devices; torchrec is 1.3 times as fast here"
    assert said == f"{words}; with tower modules dmt is another model than dcn."
    assert "89% host launches" in read.text and "another model" not in read.text  # a plan of one tower
    of_host = "torchrec on one host of 8, at the same batch in all, has 80% of these examples/s at 16% of the cost; simulated."
    assert small_words(asdict(replace(small, torchrec_host_ms=3.0)), plan, result.choices) == f"{said} {of_host}"
    assert small_words(asdict(result.simulated), plan, result.choices) is None


def test_a_whole_run_is_shown_with_the_origin_of_every_figure(tmp_path):
    text, read = page_of(write_run(tmp_path / "run"))
    for card in ("AUC, validation 0.7731 measured", "best reachable AUC, validation 0.7812 planted truth"):
        assert card in read.text
    assert "examples per second, mean 41,250 measured, 4 processes here, batch 1,024 over all of them" in read.text
    assert re.search(r"examples per second 109,226,667 simulated, h100x64, batch 4,096 a rank", read.text)
    assert "measured: 23.6 ms an iteration on average, median 24.8 ms" in read.text and "simulated: 2.400 ms an iteration" in read.text
    assert "Collectives (measured)" in read.text and "Collectives (simulated)" in read.text
    for table in make_plan(8, 8).tables:
        assert table.name in read.text
    drawn = re.findall('<figure id="([^"]*)"', text)
    plans = ["weights-named", "map-named", "weights-here", "map-here"]
    assert drawn == ["curve-0", "curve-1", *plans, "phases-measured", "phases-simulated"]
    assert re.findall('<a href="([^"]*)"', text) == [f"#{anchor}" for anchor in CONTENTS]
    assert set(CONTENTS) <= {value for key, value in read.attributes if key == "id"}
    assert "cluster: name: h100x64" in read.text and "torchrec 1.8" in read.text


@pytest.mark.parametrize("make", [make_result, lambda: make_result("simulate"), lambda: make_result("plan"), lambda: failed(make_result())])
def test_the_page_asks_nothing_of_anywhere(tmp_path, make):
    text, read = page_of(write_run(tmp_path / "run", make()))
    assert not {"link", "img", "iframe", "object", "form"} & read.tags
    assert not [a for a in read.attributes if a[0] in ("src", "action", "srcset", "background") or a[0].startswith("on")]
    assert not [value for key, value in read.attributes if key == "href" and not value.startswith("#")]
    assert "url(" not in text.replace("url(#", "") and "@import" not in text and "://" not in text
    head = text[: text.index("</head>")]
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in head and "<script" not in text


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("simulate", ["not trained: mode=simulate"]),
        ("plan", ["not trained: mode=plan", "not simulated: mode=plan"]),
        ("train", ["not simulated: mode=train"]),
    ],
)
def test_absent_parts_are_said(tmp_path, mode, said):
    _, read = page_of(write_run(tmp_path / "run", make_result(mode)))
    for sentence in said:
        assert sentence.lower() in read.text.lower()
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
    text, read = page_of(write_run(tmp_path / "run", failed(make_result(), "<script>alert(1)</script> & more")))
    assert "<script" not in text and "<script>alert(1)</script> & more" in read.text
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


def test_the_weights_of_a_rank_are_what_it_holds():
    plan = make_plan(2, 4)
    assert [sum(bar.values()) for bar in plots.weights_by_scheme(plan)] == list(plan.weight_bytes_of_ranks())
    said = [tip for tip in tips(plots.rank_weights(plan, "weights")) if tip.startswith("rank 5\n")]
    schemes = {placement.scheme.replace("_", " ") for placement in plan.placements}
    assert len(said) == len(schemes) and all(any(scheme in tip for tip in said) for scheme in schemes)


def test_of_many_ranks_the_fullest_is_named_and_beyond_a_thousand_a_bar_is_a_host():
    plan = make_plan(32, 8)
    assert all("most on rank " in tip for tip in tips(plots.rank_weights(plan, "weights")))
    plan = make_plan(256, 8)
    chart = plots.rank_weights(plan, "weights")
    assert len(plots.fullest_of_hosts(plan)) == 256 and chart.title.startswith("table weights per host, at most")
    assert all("most on host, its fullest rank, " in tip for tip in tips(chart))


def test_the_limit_is_drawn_where_the_weights_come_near_it():
    plan = make_plan(2, 2)
    most = max(plan.weight_bytes_of_ranks())
    near, far = (words(plots.rank_weights(plan, "weights", limit_bytes=most * times)) for times in (2, 100))
    assert [text for text in near if text.startswith("limit ")] and not [text for text in far if text.startswith("limit ")]
    assert "1.0%" in plots.gauge(most, most * 100)


def test_the_iterations_bar_is_divided_as_its_phases():
    chart = plots.iteration_bar("phases", {"forward": 2.0, "backward": 6.0, "other": 0.0}, 10.0, "measured")
    assert tips(chart) == ["forward: 2.000 ms, 20.0%", "backward: 6.000 ms, 60.0%", "in no phase: 2.000 ms, 20.0%"]
    assert {"forward 2.000 ms", "backward 6.000 ms", "in no phase 2.000 ms"} <= set(words(chart))


def test_no_curve_without_figures_and_one_point_is_enough():
    empty = {"step": 1.0, "train_loss": None, "validation_auc": None}
    assert plots.learning_curve([]) == [] and plots.learning_curve([empty]) == []
    (curve,) = plots.learning_curve([{"step": 1.0, "train_loss": 0.5, "validation_auc": None}])
    assert (curve.title, tips(curve)) == ("training loss", ["training loss, last 0.50000 at step 1"])


def test_names_in_a_chart_are_no_markup_and_colours_are_the_pages():
    with drawing() as axes:
        (line,) = axes.plot([1, 2], color="#1f2328")
        tip(line, "</title><b>\nsecond")
        axes.set(xlabel="</script><b>", ylabel="$\\nothing$ \u7684")
        drawn = chart(axes, "one", "</script><b>")
    html = element(drawn)
    assert "</script>" not in html and "<b>" not in html and tips(drawn) == ["</title><b>\nsecond"]
    assert "$\\nothing$ \u7684" in words(drawn) and "var(--ink)" in html and "#1f2328" not in html
