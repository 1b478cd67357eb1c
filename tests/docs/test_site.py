"""The site: links that lead out of docs/ are turned, every group has a page with every key, and no page asks another host."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from docs.generator.__main__ import write_pages
from docs.generator.config_pages import GROUPS, comments, config_pages
from docs.generator.figures import plan_figure
from docs.generator.flow import PHONE, flow_figure
from docs.generator.links import Site
from docs.generator.pictures import IMAGES, tidy
from recsys_lab.config.schema import GROUPS as CONFIG_GROUPS
from tests.docs.pages import PAGES, ROOT
from tests.record.fake_run import make_plan


@functools.cache
def pages_of_groups() -> dict[str, str]:
    """Made once: they take seconds."""
    return config_pages(ROOT)


def test_every_group_has_a_page_with_every_choice_and_key() -> None:
    pages = pages_of_groups()
    assert set(CONFIG_GROUPS) <= set(GROUPS)
    for group in GROUPS:
        for path in (ROOT / "conf" / group).glob("*.yaml"):
            assert f"\n## {path.stem}\n" in pages[f"config/{group}.md"], path
    studies = pages["config/experiment.md"]
    for path in (ROOT / "conf" / "experiment").glob("*/*.yaml"):
        assert f"\n## {path.parent.name}/{path.stem}\n" in studies, path
    assert "| `study.within` | `0.02` | how far off an amount may be, a share |" in studies
    assert "| [`dmt/table3`](#dmttable3) | DMT, table 3: SPTT alone leaves the model as it is. |" in studies
    trainer = pages["config/trainer.md"]
    assert "| `max_steps` | int | `-1` | -1: all of max_epochs |" in trainer
    assert "| `early_stopping.metric` |" in trainer
    assert "| `device.cache_mb` | `40.0` |" in pages["config/cluster.md"]
    assert "| `device.memory_gb` | `80.0` |" in pages["config/cluster.md"]  # from another file, by its defaults list
    assert "or some of &#123;a2a_global_gb_s, " in pages["config/sharder.md"]  # a brace at a cell's end would be taken for attributes
    assert "| `planner.column_shards` |" in pages["config/sharder.md"] and "| `seed` | int | `1` |" in pages["config/index.md"]


def test_a_meaning_is_shared_by_choices_that_build_the_same_and_values_stand_as_a_command_takes_them() -> None:
    pages = pages_of_groups()
    dcn, deepfm = (pages["config/model.md"].split(f"\n## {name}\n")[1].split("\n## ")[0] for name in ("dcn", "deepfm"))
    assert "first-order weight" in deepfm and "first-order weight" not in dcn
    assert "| `link_gb_s` | float | `${host_link_gb_s:${cluster.ranks_per_host}," in pages["config/launcher.md"]
    assert (
        "| of a host, one way: what its ranks' links carry together |" in pages["config/launcher.md"]
    )  # of a file with keys of all groups
    assert "| `{fp32: 19.5, tf32: 156.0, bf16: 312.0, fp16: 312.0}` |" in pages["config/cluster.md"]
    assert "| `{'Tiny, 1 x A100': 24.4, 'Tiny, 8 x A100': 5.54, ...}` |" in pages["config/profile.md"]
    assert "`What share of the processor's peak do an MLP's products reach?`" in pages["config/experiment.md"]
    assert "nothing starts unless `launcher.submit=true`." in pages["config/launcher.md"]
    assert "\nIt has no keys.\n" in pages["config/logger.md"] and "what it is |\n|---|---|---|---|\n\n" not in "".join(pages.values())


def test_keys_that_all_choices_of_a_group_have_are_explained_once() -> None:
    """A choice then has those that it sets to something else than the default."""
    for group in ("cluster", "profile"):
        whole, *choices = pages_of_groups()[f"config/{group}.md"].split("## Keys of every choice\n")[1].split("\n## ")
        rows = {line.split(" | ")[0]: line.split(" | ")[2].strip("` |") for line in whole.splitlines() if line.startswith("| `")}
        assert len(rows) > 20 and len(choices) > 4
        for choice in choices:
            own = [line.split(" | ") for line in choice.splitlines() if line.startswith("| `")]
            assert own and all(key in rows for key, *_ in own), choice
            assert all(value.strip("` |") != rows[key] for key, value, *_ in own), choice
            assert {key for key, default in rows.items() if not default and "." not in key} <= {key for key, *_ in own}
    page = pages_of_groups()["config/cluster.md"]
    assert "| `cross_host.message_us` | float or null | `null` | cost of each message of an all-to-all; null: `latency_us` |" in page
    assert page.count("cost of each collective that uses the link") == 2  # within a host and across hosts


def test_a_comment_is_that_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("# head\na: 1 # one\nb:\n  c: 2 # two\n  d: [ # three\n    5, 6,\n  ]\ne: null\nf: 1 # four\n")
    assert comments(path) == {"a": "one", "b.c": "two", "b.d": "three", "f": "four"}


def test_links_are_turned_and_code_is_left_alone(tmp_path: Path) -> None:
    site = Site(ROOT, tmp_path)
    page = ROOT / "docs" / "decisions" / "search.md"
    links = "[a](../../README.md#start) [b](../../conf/cluster/h100.yaml) [c](README.md) [d](../../experiments/dmt/README.md)"
    text = links + "\n\n    [x](nowhere)"
    made = site.turned(text, page)
    links = "[a](../readme.md#start) [b](../source/conf/cluster/h100.yaml.txt) [c](README.md) [d](../studies/dmt.md)"
    assert made == links + "\n\n    [x](nowhere)"
    assert (tmp_path / "source" / "conf" / "cluster" / "h100.yaml.txt").is_file() and (tmp_path / "studies" / "dmt.md").is_file()


def test_links_are_turned_over_two_lines_and_inside_lists(tmp_path: Path) -> None:
    site = Site(ROOT, tmp_path)
    items = "1. Next:\n   - inner that\n     goes on ([a](../conf/cluster/h100.yaml)) by 7 %\n\n       [x](nowhere)"
    text = "[its\nwords](../README.md)\n\n" + items
    made = site.turned(text, ROOT / "docs" / "index.md")
    assert made.startswith("[its\nwords](readme.md)\n") and made.endswith("       [x](nowhere)")
    assert "goes on ([a](source/conf/cluster/h100.yaml.txt)) by 7\u00a0%" in made


def test_every_page_of_the_navigation_is_written_and_so_is_every_page_that_one_leads_to(tmp_path: Path) -> None:
    write_pages(tmp_path)
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    missing = [name for name in re.findall(r"[\w/]+\.md", str(navigation)) if not (tmp_path / name).is_file()]
    for page in tmp_path.rglob("*.md"):
        for target in re.findall(r"\]\((?!\w+://|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            if target.endswith(".md") and not (page.parent / target).is_file():
                missing.append(f"{page.relative_to(tmp_path)}: {target}")
    assert not missing


def test_pictures_in_html_go_with_their_page(tmp_path: Path) -> None:
    turned = Site(ROOT, tmp_path).turned('<img src="docs/images/decide_light.svg">', ROOT / "README.md")
    assert turned == '<img src="images/decide_light.svg">' and (tmp_path / "images/decide_light.svg").is_file()


def test_a_search_shows_guides_before_decisions(tmp_path: Path) -> None:
    site = Site(ROOT, tmp_path)
    for name in ("decisions/search.md", "search.md"):
        site.add_page(ROOT / "docs" / name)
    texts = [(tmp_path / name).read_text() for name in ("decisions/search.md", "search.md")]
    assert texts[0].startswith("---\nsearch:\n  boost: 0.3\n---\n\n# ") and texts[1].startswith("# ")


def test_pictures_outside_docs_stay_pictures(tmp_path: Path) -> None:
    place = "experiments/validation/simulated_against_measured.svg"
    turned = Site(ROOT, tmp_path).turned(f"![x](../{place})", ROOT / "docs" / "how_figures_are_checked.md")
    assert turned == f"![x](source/{place})" and (tmp_path / "source" / place).is_file()


def test_a_percentage_stays_on_one_line(tmp_path: Path) -> None:
    turned = Site(ROOT, tmp_path).turned("7.6 % off, `7.6 %` as typed\n\n    7.6 % as printed", ROOT / "README.md")
    assert turned == "7.6\u00a0% off, `7.6 %` as typed\n\n    7.6 % as printed"


def test_lists_are_those_that_a_code_host_shows(tmp_path: Path) -> None:
    text = "So:\n- one\n  more of it\n- two\n\n1. **Step**. Weak:\n   - inner\n\n   rest\n2. Next\n\n    - code\n"
    shown = Site(ROOT, tmp_path).turned(text, ROOT / "README.md")
    assert shown == "So:\n\n- one\n  more of it\n- two\n\n1. **Step**. Weak:\n    - inner\n\n    rest\n2. Next\n\n    - code\n"


def test_a_dated_log_of_measurements_is_a_page(tmp_path: Path) -> None:
    turned = Site(ROOT, tmp_path).turned(
        "[a](../../experiments/benchmarks/2026-11_limits.md#an-intel-xeon)", ROOT / "docs/decisions/stores.md"
    )
    assert turned == "[a](../studies/2026-11_limits.md#an-intel-xeon)"
    assert (tmp_path / "studies" / "2026-11_limits.md").read_text().startswith("---\nsearch:\n  boost: 0.3\n---\n\n# Limits")


def test_a_link_to_nothing_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"docs/index\.md: a link to nowhere\.md, which is not there"):
        Site(ROOT, tmp_path).turned("[a](nowhere.md)", ROOT / "docs" / "index.md")


def test_every_link_of_every_page_leads_somewhere(tmp_path: Path) -> None:
    site = Site(ROOT, tmp_path)
    for page in (ROOT / "docs").rglob("*.md"):
        site.turned(page.read_text(encoding="utf-8"), page)


def test_the_site_follows_the_readers_system_at_every_visit() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    first, *others = [palette["media"] for palette in settings["theme"]["palette"]]
    assert first == "(prefers-color-scheme)"  # Material keeps the first that fits, for good
    assert others == ["(prefers-color-scheme: light)", "(prefers-color-scheme: dark)"]


def test_the_page_for_what_is_not_there_leads_to_pages_that_are(tmp_path: Path) -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    page = (ROOT / settings["theme"]["custom_dir"] / "404.html").read_text(encoding="utf-8")
    targets = re.findall(r"""\{\{ '([\w/]+)\.html' \| url \}\}""", page)
    made = {*pages_of_groups(), *(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))}
    assert len(targets) > 2 and {f"{target}.md" for target in targets} <= made


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_site_is_built_and_asks_nothing_of_another_host() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not here")
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = list((ROOT / "site").rglob("*.html"))
    assert len(pages) > 40
    asks = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")
    assert not [page for page in pages if asks.search(page.read_text(encoding="utf-8"))]
    styles = [*(ROOT / "site").rglob("*.css")]
    assert not [style for style in styles if re.search(r"url\(['\"]?https?:|@import", style.read_text(encoding="utf-8"))]
    assert "<img" in (ROOT / "site" / "sharders.html").read_text(encoding="utf-8")


def test_drawings_on_file_follow_the_readers_scheme_and_every_picture_has_its_page() -> None:
    assert (IMAGES / "architecture.svg").read_text(encoding="utf-8") == tidy(flow_figure())
    assert (IMAGES / "architecture_phone.svg").read_text(encoding="utf-8") == tidy(flow_figure(PHONE))
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (*IMAGES.glob("*.svg"), *IMAGES.glob("*.png")):
        assert f"images/{picture.name}" in pages, f"{picture.name} is on no page"
        assert picture.stat().st_size < 200_000
        if picture.suffix == ".svg" and not picture.stem.endswith(("_light", "_dark")):
            assert "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8")
    for light in IMAGES.glob("*_light.*"):
        assert light.with_name(light.name.replace("_light", "_dark")).is_file()


def test_a_plan_is_drawn_with_a_rectangle_a_shard_and_rank() -> None:
    plan = make_plan(2, 2)
    picture = ElementTree.fromstring(plan_figure(plan, "torchrec"))
    words = " ".join(text for text in picture.itertext() if text.strip())
    assert all(table.name in words for table in plan.tables) and "host 1: 2" in words and "on every rank" in words
    parts = sum(len(shard.ranks) for placement in plan.placements for shard in placement.shards)
    patches = [group for group in picture.iter("{http://www.w3.org/2000/svg}g") if group.get("id", "").startswith("patch_")]
    assert len([group for group in patches if "fill-opacity" not in str(group[0].get("style"))]) >= parts
