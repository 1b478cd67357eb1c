"""Links whose figures may be gigabits: held to the links on file."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from recsys_lab.base.paths import CONF
from recsys_lab.cluster import doubt
from recsys_lab.cluster.doubts import ON_FILE
from recsys_lab.config.choices import built
from recsys_lab.decide.decision import _of_doubts
from recsys_lab.record.result import _simulated
from recsys_lab.report.sections import outside_words
from tests.record.fake_run import make_result

CLUSTERS = sorted(path.stem for path in (CONF / "cluster").glob("*.yaml") if path.stem != "local")


def figures(place: str) -> list[float]:
    """Of all links that stand at `place` of a cluster on file."""
    lists = [yaml.safe_load((CONF / f"cluster/{name}.yaml").read_text()).get("defaults", []) for name in CLUSTERS]
    links = {one[f"link@{place}"] for each in lists for one in each if isinstance(one, dict) and f"link@{place}" in one}
    values = [yaml.safe_load((CONF / f"cluster/link/{name}.yaml").read_text()) for name in links]
    return [value for link in values for key in ("bandwidth_gb_s", "ring_gb_s") if (value := link[key]) is not None]


@pytest.mark.parametrize("place", ON_FILE)
def test_the_range_is_that_of_the_links_on_file(place: str) -> None:
    least, most = ON_FILE[place]
    assert max(figures(place)) == most and least <= min(figures(place)) < least + 0.5


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_cluster_on_file_is_doubted(name: str) -> None:
    assert doubt(built("cluster", name)) is None


def test_gigabits_are_questioned_where_the_link_is_used() -> None:
    on = built("cluster", "h100x64")
    fast = replace(on, intra_host=replace(on.intra_host, bandwidth_gb_s=2100.0))
    words = "cluster.intra_host.bandwidth_gb_s=2100: really GB/s? links within a host on file reach 6 to 740 GB/s"
    assert doubt(fast) == f"{words}; if it is Gbit/s, give bandwidth_gb_s=262.5"
    network = replace(on, cross_host=replace(on.cross_host, bandwidth_gb_s=400.0, ring_gb_s=400.0))
    assert "links between hosts on file reach 6 to 90 GB/s; if it is Gbit/s, give bandwidth_gb_s=50, ring_gb_s=50" in str(doubt(network))
    assert doubt(network.reshaped(1, 8)) is None and doubt(fast.reshaped(8, 1)) is None


def test_who_reads_a_simulated_time_reads_the_doubt() -> None:
    """A record, its page, and an answer of decide."""
    on = built("cluster", "h100x64")
    fast = replace(on, cross_host=replace(on.cross_host, bandwidth_gb_s=400.0))
    cases: Any = [SimpleNamespace(cluster=name, experiment=SimpleNamespace(cluster=one)) for name, one in (("a", on), ("b", fast))]
    (words,) = _of_doubts(cases)
    assert words == f"b: {doubt(fast)}."
    assert outside_words({"simulated": {"extrapolates": None, "doubt": doubt(fast)}}) == f"{doubt(fast)}."
    result = make_result("simulate")
    assert result.simulated is not None and "doubt" not in (_simulated(result.simulated) or {})
    assert (_simulated(replace(result.simulated, doubt="really?")) or {})["doubt"] == "really?"
