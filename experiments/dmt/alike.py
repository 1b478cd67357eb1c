"""Figures 10 to 13 by what the paper does not say: how long a part of an iteration neither towers nor compression shorten.

The text has "up to 2" for figure 12. That tells this time for each platform, if each reaches 2. The other figures are then predicted.
"""

from __future__ import annotations

from experiments.dmt.complexity import published
from experiments.dmt.figures import AT, SIMULATED, sizes
from experiments.dmt.speed import PLATFORMS, SIZES, Case, price_all, priced
from recsys_lab.studies.study import Line, Study

#: Figure 12's case of the largest speed-up: compression 16.
SMALLEST = (("c", 1), ("p", 0), ("dim", 8))


def run(name: str) -> Study:
    """The largest speed-ups of figures 10 and 11 and figure 13's compute, each with the time that makes figure 12's 2.0."""
    text = published()
    grid = [(model, p, gpus) for model in ("dlrm", "dcn") for p in PLATFORMS for gpus in sizes(p, max(SIZES))]
    price_all([Case(*where, kind) for where in grid for kind in ("baseline", "sptt", "dmt")], name)
    extra = {p: extra_ms(*_figure12(p), text["figure12"]["dlrm"]) for p in PLATFORMS}

    def largest(model: str, over: str, *, alike: bool) -> float:
        own = [(_ms(m, p, gpus, over), _ms(m, p, gpus, "dmt"), extra[p] * alike) for m, p, gpus in grid if m == model]
        return max((slow + more) / (fast + more) for slow, fast, more in own)

    flat, dmt = (priced(Case("dcn", "h100", AT, kind)).phases_ms["compute"] for kind in ("baseline", "dmt"))
    lines = [
        Line(f"{p.upper()}: time alike that makes figure 12's largest speed-up 2", ms, None, "ms", "fitted") for p, ms in extra.items()
    ]
    shares = {p: 100 * ms / (_figure12(p)[0] + ms) for p, ms in extra.items()}
    lines += [Line(f"{p.upper()}: its share of SPTT's iteration", share, None, "%", "fitted") for p, share in shares.items()]
    off: dict[bool, list[float]] = {False: [], True: []}
    for alike, errors in off.items():
        more = extra["h100"] * alike
        found = (
            ("figure 10, DLRM: largest speed-up", largest("dlrm", "baseline", alike=alike), text["figure10"]["dlrm"]),
            ("figure 10, DCN: largest speed-up", largest("dcn", "baseline", alike=alike), text["figure10"]["dcn"]),
            ("figure 11, DLRM: largest speed-up", largest("dlrm", "sptt", alike=alike), text["figure11"]["dlrm"]),
            ("figure 13: compute, times less", float((flat + more) / (dmt + more)), text["figure13"]["compute"]),
        )
        title = "with it" if alike else "without it"
        lines += [
            Line(f"{what}, {title}", x, theirs if alike else None, "x", "fitted" if alike else "simulated") for what, x, theirs in found
        ]
        errors += [abs(x / theirs - 1) for _, x, theirs in found]
    statements = (
        ("the time that figure 12 tells brings the other figures nearer", sum(off[True]) < sum(off[False])),
        ("with it figure 13's compute is within 5 % of 1.4", off[True][-1] < 0.05),
    )
    notes = ("The time is added to every iteration alike. What it is, the paper does not say; the simulator does not have it.", SIMULATED)
    return Study(name, "what time neither towers nor compression shorten", tuple(lines), statements, notes, {"extra_ms": extra})


def extra_ms(slow: float, fast: float, speed_up: float) -> float:
    """What must be added to both times so that one is `speed_up` times the other."""
    return (slow - speed_up * fast) / (speed_up - 1)


def _ms(model: str, platform: str, gpus: int, kind: str) -> float:
    return float(priced(Case(model, platform, gpus, kind)).iteration_ms)


def _figure12(platform: str) -> tuple[float, float]:
    """Under SPTT alone, and with compression 16."""
    return _ms("dlrm", platform, AT, "sptt"), float(priced(Case("dlrm", platform, AT, "dmt", SMALLEST)).iteration_ms)
