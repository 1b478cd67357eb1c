"""What goes last on a link: done when it fits in, and at rest when all is carried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.validation.command import summary
from experiments.validation.fit import Found, Point
from recsys_lab.cluster import Link
from recsys_lab.simulate.background import First, at_rest_ms, fitted_in_ms
from recsys_lab.simulate.collectives import Shape, group_cost
from tests.simulate.clusters import cluster

times = st.floats(0, 100)


def busy(gaps: list[tuple[float, float]]) -> list[First]:
    """One link busy for `length` after each `gap`."""
    found, now = [], 0.0
    for gap, length in gaps:
        found.append(First(np.array([now + gap]), np.array([now + gap + length])))
        now += gap + length
    return found


@settings(max_examples=300)
@given(st.lists(st.tuples(times, times), max_size=6), times, times)
def test_what_goes_last_has_the_link_when_nothing_else_does(gaps: list[tuple[float, float]], begin: float, ms: float) -> None:
    first = busy(gaps)
    done = fitted_in_ms(begin, ms, first)
    taken = sum(max(min(done, float(o.end[0])) - max(begin, float(o.begin[0])), 0.0) for o in first)
    assert done - begin - taken == pytest.approx(ms, abs=1e-9)
    last = max([float(o.end[0]) for o in first], default=0.0)
    assert at_rest_ms(begin, ms, first) == pytest.approx(max(done, last), abs=1e-9)


def test_a_link_carries_others_bytes_where_a_collective_does_not_reach_its_line() -> None:
    """10 GB/s of 25: 60 % of the time that the bytes take is others'."""
    shape, size = Shape(8, 4, 2), 80e6
    whole, shared = (group_cost("all_to_all", shape, size, cluster(4, 2, **line)) for line in ({}, {"line": 25.0}))
    assert whole.ms == shared.ms and whole.spare_ms == 0
    assert shared.wire_ms == pytest.approx(whole.wire_ms * 10 / 25) and shared.spare_ms == pytest.approx(whole.wire_ms * 0.6)
    assert Link("l", 10.0, 1.0, "for the test", line_gb_s=5.0).taken_by(10.0) == 1.0


def test_only_times_are_in_the_mean_of_times_and_nothing_is_hidden() -> None:
    def point(published: float, simulated: float, unit: str = "ms", *, bound: bool = False) -> Found:
        return Found(Point("neo", "made up", published, lambda _: simulated, unit, bound=bound), simulated)

    made = summary([point(10, 11), point(10, 12), point(2, 1, "times"), point(10, 18, bound=True), point(10, 9, bound=True)])
    assert made["open_mape"] == pytest.approx(15) and made["all_mape"] == pytest.approx((10 + 20 + 50 + 80 + 10) / 5)
    assert made["kinds"]["ratio"]["mape"] == pytest.approx(50) and made["kinds"]["bound"]["kept"] == 1
    assert [p["kind"] for p in made["points"]] == ["time", "time", "ratio", "bound", "bound"]
    assert [p["holds"] for p in made["points"]] == [None, None, None, True, False]
