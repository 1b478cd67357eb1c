"""What a report says of tables larger than memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsys_lab.plan.explain import explain
from recsys_lab.plan.store import DISK_CACHED, HOST, HOST_CACHED, LFU, Store
from recsys_lab.plan.store_facts import StoreFacts
from recsys_lab.record.run_folder import Run, read_run
from recsys_lab.report.page import write_page
from recsys_lab.report.stores import curve_words, store_curve, stores, stores_here
from tests.record.fake_run import make_plan, make_result, write_run
from tests.report.drawn import tips, words

FACTS = [
    StoreFacts("cat_0", DISK_CACHED, LFU, 0.125, 0.0016, 0.82, 112_500.0),
    StoreFacts("cat_5", HOST, LFU, 0.0, 0.0, 0.0, 2e6),
]
COUNTED = {"hits": 30.0, "misses": 70.0, "bytes_read": 0.0, "bytes_written": 0.0, "hits_expected": 29.0, "misses_expected": 71.0}
MISSED = {"hits": 0.0, "misses": 100.0, "bytes_read": 0.0, "bytes_written": 0.0, "hits_expected": 1.0, "misses_expected": 99.0}


def point(memory_gb: float, ms: float, chosen: bool = False) -> dict[str, Any]:
    return {"memory_gb": memory_gb, "cached_share": memory_gb / 10, "tables": 2, "iteration_ms": ms, "chosen": chosen}


POINTS = [point(1, 90.0), point(2, 40.0), point(4, 20.3), point(6, 20.0, True), point(10, 20.0)]


def run_with(folder: Path, one_plan: bool = True, curve: bool = True) -> Run:
    made = make_result()
    assert made.plan is not None and made.measured is not None
    measured = replace(made.measured, stores=[{"cat_0": COUNTED}, {"cat_0": MISSED}])
    write_run(folder, replace(made, plan=replace(made.plan, stores=FACTS), measured=measured))
    if one_plan:
        (folder / "plan_here.json").unlink()
    if curve:
        (folder / "stores.json").write_text(json.dumps({"cluster": "h100x64", "profile": "torchrec", "points": POINTS}))
    return read_run(folder)


def test_hits_measured_stand_beside_hits_expected(tmp_path: Path) -> None:
    table = stores(run_with(tmp_path / "run"))
    assert table is not None and table.columns[-2:] == ("measured hits", "expected hits")
    assert table.rows[0] == ("cat_0", "disk", "12.5%", "0.16%", "82.0%", "112.5 kB", "15.0%", "15.0%")
    assert table.rows[1] == ("cat_5", "host memory", "none", "none", "", "2.0 MB", "", "")


def test_what_trained_elsewhere_has_a_table_of_its_own(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", one_plan=False)
    named = stores(run)
    assert named is not None and named.columns[-1] == "moved"
    assert run.plan_here is not None
    first = replace(run.plan_here.placements[0], store=Store(DISK_CACHED, 0.5))
    here = stores_here(replace(run, plan_here=replace(run.plan_here, placements=(first, *run.plan_here.placements[1:]))))
    assert here is not None and here.rows == (("cat_0", "disk", "50.0%", "15.0%", "15.0%"),)


def test_a_run_without_stores_says_nothing_of_them(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert stores(run) is None and stores_here(run) is None and store_curve(run) is None
    assert "larger than memory" not in write_page(run.folder).read_text()


def test_the_curve_marks_the_plan_and_the_smallest_useful_cache(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    chart = store_curve(run)
    assert chart is not None and "simulated, h100x64" in chart.title
    said = {tip.split("\n")[0]: tip for tip in tips(chart)}
    assert said["this plan"].split("\n")[1].startswith("6.0 GB a rank")
    assert said["the smallest useful cache"].split("\n")[1].startswith("4.0 GB a rank")
    assert len(tips(chart)) == len(POINTS) + 2 and "1.0 GB" in words(chart) and "10.0%" in words(chart)
    assert curve_words(POINTS).startswith(
        "This plan: 6.0 GB a rank, 60.0% of rows cached, 20.0 ms. The least memory that works: 1.0 GB a rank"
    )
    page = write_page(run.folder).read_text()
    assert '<figure id="store-curve"' in page and "Tables larger than memory" in page
    best = store_curve(replace(run, stores={"cluster": "c", "profile": "p", "points": [point(1, 20.0, True), point(10, 20.0)]}))
    assert best is not None and "this plan, the smallest useful cache" in words(best)


def test_a_plan_in_words_says_where_rows_are() -> None:
    plan = make_plan(1, 2)
    assert "memory caches" not in " ".join(explain(plan))
    placed = list(plan.placements)
    for number, store in ((0, Store(HOST_CACHED, 0.1)), (5, Store(HOST_CACHED, 0.25)), (7, Store(HOST))):
        placed[number] = replace(placed[number], store=store)
    said = explain(replace(plan, placements=tuple(placed)))
    assert "2 tables (179.2 MB) have their rows in the hosts' memory; the ranks' memory caches 10 % to 25 % of them." in said
    assert "1 table (30.7 MB) has its rows in the hosts' memory; no row is cached." in said
