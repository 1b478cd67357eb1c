"""Figures 9 and 12: how much faster more sockets are, strong and weak scaling, simulated on cluster=clx64 with profile=cpu.

The profile's two figures were fitted to five published points, four of which are these. So each is shown twice: by the profile on file, and
predicted by a fit without it (experiments/validation).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from experiments.cpu_dlrm.tables import published
from experiments.validation import cpu
from experiments.validation.fit import validate
from experiments.validation.models import published as points_published
from recsys_lab.config.choices import built
from recsys_lab.plan.scheme import ALL_TO_ALL, EXCHANGES
from recsys_lab.studies.pictures import BLUE, GREEN, GREY, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

CLUSTER = "clx64"
#: Model -> sockets, the first of which the others are compared with.
SOCKETS = {"dlrm_small": (1, 2, 4, 8), "dlrm_large": (4, 8, 16, 32, 64), "dlrm_mlperf": (1, 2, 4, 8, 16, 26)}
NAMES = {"dlrm_small": "small", "dlrm_large": "large", "dlrm_mlperf": "MLPerf"}
COLOURS = {"dlrm_small": BLUE, "dlrm_large": ORANGE, "dlrm_mlperf": GREEN}
KINDS = {"figure9": "strong", "figure12": "weak"}
QUESTIONS = {"figure9": "a fixed batch on more sockets", "figure12": "a batch that grows with the sockets"}
NOTES = (
    "Simulated. The paper's baseline is one socket, of the large model four; its curves have no numbers but those of the text.",
    "The all-to-all's curves are oneCCL's; the MPI backend's, which the paper has 1.4 times slower at most, are not modelled.",
    "On file: by a profile that was fitted to this figure too. Predicted: by one that was fitted to the other published points only.",
)


def run(name: str) -> Study:
    kind = KINDS[name]
    profile, fitted = built("profile", "cpu"), list(points_published().cpu.fitted)
    found = validate(cpu.points(), profile, fitted, [getattr(profile, key) for key in fitted])
    lines: list[Line] = []
    printed: dict[str, tuple[int, float]] = {}  # model -> sockets, and how many times faster they are
    for point in found:
        if kind in point.what:
            model = next(model for model, what in NAMES.items() if point.what.startswith(what))
            printed[model] = max(SOCKETS[model]), point.published
            lines.append(Line(f"{point.what}: predicted", point.left_out, point.published, "times", "simulated"))
            lines.append(Line(f"{point.what}: on file", point.simulated, point.published, "times", "simulated", by_construction=True))
    curves = {model: curve(model, kind) for model in SOCKETS}
    efficiency = {model: of[max(of)] * min(of) / max(of) for model, of in curves.items()}
    if kind == "strong":
        times = sum(published()["figure9"]["eight_times_the_sockets"]) / 2
        for model in ("dlrm_small", "dlrm_large"):
            first = SOCKETS[model][0]
            printed[model] = 8 * first, times
            lines.append(Line(f"{NAMES[model]}, {first} to {8 * first} sockets", curves[model][8 * first], times, "times", "simulated"))
        statements = [("MLPerf uses its sockets least well", min(efficiency, key=efficiency.__getitem__) == "dlrm_mlperf")]
        by_exchange = {exchange: {model: whole_curve(model, exchange) for model in SOCKETS} for exchange in EXCHANGES}
        lines += _exchanges(by_exchange)
        best = by_exchange[ALL_TO_ALL]
        native = all(best[m][n] >= x for by_model in by_exchange.values() for m, of in by_model.items() for n, x in of.items())
        statements.append(("one all-to-all is never slower than scatters", native))
    else:
        in_order = sorted(efficiency, key=efficiency.__getitem__) == ["dlrm_mlperf", "dlrm_small", "dlrm_large"]
        grows = curves["dlrm_mlperf"][26] > curve("dlrm_mlperf", "strong")[26]
        statements = [
            ("large uses its sockets best, MLPerf least well", in_order),
            ("MLPerf gains more with a batch that grows than with a fixed one", grows),
        ]
    data = {"curves": {NAMES[model]: {str(sockets): times for sockets, times in of.items()} for model, of in curves.items()}}
    pictured = partial(_draw, name, curves, printed)
    return Study(name, QUESTIONS[name], tuple(lines), tuple(statements), NOTES, data, pictured)


def _exchanges(by_exchange: dict[str, dict[str, dict[int, float]]]) -> list[Line]:
    """The curve of each exchange at its end, and what an all-to-all gains over the faster of the scatters on MLPerf's most sockets."""
    lines = [
        Line(f"{NAMES[model]}, whole tables, {exchange}, to {max(of)} sockets", of[max(of)], None, "times", "simulated")
        for exchange, by_model in by_exchange.items()
        for model, of in by_model.items()
    ]
    ends = {exchange: max(by_model["dlrm_mlperf"].items())[1] for exchange, by_model in by_exchange.items()}
    gain = ends[ALL_TO_ALL] / max(end for exchange, end in ends.items() if exchange != ALL_TO_ALL)
    theirs = published()["figure9"]["all_to_all_over_scatter"]
    what = f"MLPerf, {max(SOCKETS['dlrm_mlperf'])} sockets: one all-to-all over scatters (more than)"
    return [*lines, Line(what, gain, theirs, "times", "simulated")]


def whole_curve(model: str, exchange: str) -> dict[int, float]:
    """Samples a second by sockets with `exchange`, over those of the fewest with one all-to-all. Tables lie whole, as the paper's do."""
    given: dict[str, Any] = {"model": model, "cluster": CLUSTER, "batch": published()["table1"][model]["batch_strong"], "columns": False}
    base = given | {"sockets": min(SOCKETS[model])}
    profile = built("profile", "cpu")
    return {sockets: float(cpu.speed_up(given | {"sockets": sockets, "exchange": exchange}, base)(profile)) for sockets in SOCKETS[model]}


def curve(model: str, kind: str) -> dict[int, float]:
    """Samples a second by sockets, over those of the first."""
    row, first = published()["table1"][model], SOCKETS[model][0]

    def at(sockets: int) -> dict[str, Any]:
        batch = row["batch_strong"] if kind == "strong" else row["batch_weak"] * sockets
        return {"model": model, "cluster": CLUSTER, "sockets": sockets, "batch": batch}

    profile = built("profile", "cpu")
    return {sockets: float(cpu.speed_up(at(sockets), at(first))(profile)) for sockets in SOCKETS[model]}


def _draw(name: str, curves: dict[str, dict[int, float]], printed: dict[str, tuple[int, float]], folder: Path) -> list[Path]:
    with picture(folder / f"{name}.svg", len(curves), width=11.0) as (figure, axes):
        for axis, (model, of) in zip(axes, curves.items()):
            first, most = min(of), max(of)
            axis.plot([first, most], [1, most / first], color=GREY, linewidth=1, linestyle="--", label="ideal")
            axis.plot(list(of), list(of.values()), "o-", color=COLOURS[model], label="simulated, on file")
            axis.plot(*printed[model], "D", color=INK, label="published")
            axis.set(title=NAMES[model], xlabel="sockets", ylim=(0, None))
            axis.legend(loc="upper left")
        axes[0].set_ylabel(f"times as fast as {min(curves['dlrm_small'])} or {min(curves['dlrm_large'])} sockets")
        figure.suptitle(f"{QUESTIONS[name]} (simulated)", fontsize=11)
    return written(folder, name)
