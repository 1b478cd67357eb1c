"""Figures 10 to 13: how much faster DMT is than the strong baseline, and where that comes from. The paper's bars have no figures but those
of its text; ours are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.dmt.complexity import published
from experiments.dmt.speed import PLATFORMS, SIZES, Case, price_all, priced, speed_up
from recsys_lab.base.ranges import Hosts
from recsys_lab.errors import UserError
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, GREEN, GREY, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

COLOURS = {"v100": GREY, "a100": BLUE, "h100": ORANGE}
PHASES = {"compute": "compute", "exposed_embedding_comm": "exposed embedding exchange", "exposed_dense_sync": "exposed dense sync"}
AT = 64  # GPUs of figures 12 and 13
JUDGED_PEAK = "tf32"  # as table 1 counts A100s; with FP32's the figures are the same, and are judged once
DIMS = (64, 32, 16, 8)  # of an 8-tower DLRM's vectors, of which embeddings have 128: table 5
SETTING = "16,384 samples a GPU, FP16/BF16 exchanges, input a batch ahead, TF32 where the GPU has it; strided towers, one a host up to 26."
SIMULATED = (
    "Ours is simulated with one software profile that nothing here was fitted to; the published figures are the text's, the bars have none."
)

LARGEST = max(SIZES)


def sizes(platform: str, most_gpus: int) -> list[int]:
    """Raises UserError for fewer GPUs than the figures begin with."""
    if most_gpus < min(SIZES):
        raise UserError("too few", where="gpus", given=most_gpus, allowed=f"{min(SIZES)} or more")
    return [gpus for gpus in SIZES if gpus <= min(PLATFORMS[platform], most_gpus)]


def figure10(name: str, *, gpus: Hosts = LARGEST) -> Study:
    """Speed-up of DMT over the strong baseline by platform and number of GPUs, up to `gpus`."""
    by_model = {model: _by_size(model, "dmt", "baseline", gpus) for model in ("dlrm", "dcn")}
    text = published()["figure10"]
    lines = [_most(f"{model.upper()}: largest speed-up", found, text[model]) for model, found in by_model.items()]
    dlrm, dcn = by_model["dlrm"], by_model["dcn"]
    statements = (
        ("DMT is faster than the strong baseline everywhere", all(x > 1 for found in by_model.values() for x in _all(found))),
        ("DLRM: a general trend of increasing speed-up with scale", all(_last(found) > _first(found) for found in dlrm.values())),
        ("DCN: a larger speed-up than DLRM's at the smallest scale", all(_first(dcn[p]) > _first(dlrm[p]) for p in PLATFORMS)),
        ("DCN: there the oldest GPU gains most", _first(dcn["v100"]) >= max(_first(dcn["a100"]), _first(dcn["h100"]))),
    )
    question = "speed-up of DMT over the strong baseline"
    rows = [row for model, found in by_model.items() for row in _rows(model.upper(), found)]
    return _study(name, question, lines, statements, rows, by_model, partial(_draw_sizes, name, question, by_model))


def figure11(name: str, *, gpus: Hosts = LARGEST) -> Study:
    """Speed-up of DMT over SPTT alone, up to `gpus`."""
    found = {"dlrm": _by_size("dlrm", "dmt", "sptt", gpus)}
    lines = [_most("DLRM: largest speed-up", found["dlrm"], published()["figure11"]["dlrm"])]
    statements = (
        ("tower modules add to what SPTT gives everywhere", all(x > 1 for x in _all(found["dlrm"]))),
        ("more so as the scale grows", all(_last(f) > _first(f) for f in found["dlrm"].values())),
    )
    question = "speed-up of tower modules over SPTT alone"
    further = {"dlrm_sptt_over_baseline": _by_size("dlrm", "sptt", "baseline", gpus)}
    rows = [*_rows("DLRM", found["dlrm"]), *_rows("SPTT alone over the baseline", further["dlrm_sptt_over_baseline"])]
    return _study(name, question, lines, statements, rows, found | further, partial(_draw_sizes, name, question, found))


def figure12(name: str) -> Study:
    """Speed-up of the 8-tower DLRM over SPTT alone by compression."""
    cases = {p: {128 // dim: Case("dlrm", p, AT, "dmt", (("c", 1), ("p", 0), ("dim", dim))) for dim in DIMS} for p in PLATFORMS}
    price_all([case for of in cases.values() for case in of.values()], "figure 12")
    found = {p: {ratio: speed_up(case, "sptt") for ratio, case in of.items()} for p, of in cases.items()}
    lines = [_most("largest speed-up, compression 16", found, published()["figure12"]["dlrm"])]
    statements = (("more compression, more speed", all(sorted(of.values()) == list(of.values()) for of in found.values())),)
    rows = [("8T-DLRM", p, *(f"{x:.2f}" for x in of.values())) for p, of in found.items()]
    columns = ("", f"{AT} GPUs", *(f"CR {128 // dim}" for dim in DIMS))
    question = "speed-up of compression over SPTT alone"
    draw = partial(_draw_sizes, name, question, {"dlrm": found}, label="compression ratio")
    return _study(name, question, lines, statements, rows, {"dlrm": found}, draw, columns)


def figure13(name: str) -> Study:
    """Iteration of DCN and of 8T-DCN on 64 H100s by component, with the peaks of TF32 and of FP32: the paper does not say which it used."""
    text = published()["figure13"]
    lines: list[Line] = []
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for peak in ("tf32", "fp32"):
        flat, dmt = (priced(Case("dcn", "h100", AT, kind, peak=peak)).phases_ms for kind in ("baseline", "dmt"))
        for phase, what in PHASES.items():
            ours = float(flat[phase] / dmt[phase])
            lines.append(Line(f"{peak}: {what}, times less", ours, text.get(phase), origin="simulated", repeated=peak != JUDGED_PEAK))
            shown = "–" if phase not in text else f"{text[phase]:.1f}"
            rows.append((peak, what, f"{flat[phase]:.2f}", f"{dmt[phase]:.2f}", shown, f"{ours:.2f}", _off(ours, text.get(phase))))
        waits = 100 * float((flat["exposed_embedding_comm"] + flat["exposed_dense_sync"]) / sum(flat.values()))
        title = f"{peak}: of the baseline's iteration waits for the network (figure 1: up to)"
        lines.append(Line(title, waits, text["waits"], "%", "simulated", repeated=peak != JUDGED_PEAK))
        rows.append(
            (
                peak,
                "baseline waits for the network, %",
                "",
                "",
                f"{text['waits']:.0f}",
                f"{waits:.1f}",
                f"{waits - text['waits']:+.1f} points",
            )
        )
        data[peak] = {"baseline_ms": {k: float(v) for k, v in flat.items()}, "dmt_ms": {k: float(v) for k, v in dmt.items()}}
    statements = (
        ("DMT shortens every component", all(data[p]["dmt_ms"][k] < data[p]["baseline_ms"][k] for p in data for k in PHASES)),
        (
            "most of what is saved is compute and exposed embedding exchange",
            all(_least_saved(d) == "exposed_dense_sync" for d in data.values()),
        ),
    )
    columns = ("peak", "component of DCN, 64 H100", "baseline ms", "8T-DCN ms", "times less, published", "ours", "off")
    return _study(name, "what an iteration is made of", lines, statements, rows, data, partial(_draw_parts, data), columns)


def _least_saved(of: dict[str, dict[str, float]]) -> str:
    return min(PHASES, key=lambda phase: of["baseline_ms"][phase] - of["dmt_ms"][phase])


def _by_size(model: str, kind: str, over: str, most_gpus: int) -> dict[str, dict[int, float]]:
    cases = {p: {gpus: Case(model, p, gpus, kind) for gpus in sizes(p, most_gpus)} for p in PLATFORMS}
    price_all([Case(model, p, gpus, k) for p, of in cases.items() for gpus in of for k in (over, kind)], f"{model}: plans")
    return {p: {gpus: speed_up(case, over) for gpus, case in of.items()} for p, of in cases.items()}


def _all(found: dict[str, dict[int, float]]) -> list[float]:
    return [x for of in found.values() for x in of.values()]


def _first(of: dict[int, float]) -> float:
    return of[min(of)]


def _last(of: dict[int, float]) -> float:
    return of[max(of)]


def _most(what: str, found: dict[str, dict[int, float]], text: float) -> Line:
    return Line(what, max(_all(found)), text, "x", "simulated")


def _off(ours: float, text: float | None) -> str:
    return "–" if text is None else f"{ours / text - 1:+.0%}"


def _rows(what: str, found: dict[str, dict[int, float]]) -> list[tuple[str, ...]]:
    return [(what, p, *(f"{of[gpus]:.2f}" if gpus in of else "–" for gpus in SIZES)) for p, of in found.items()]


def _study(
    name: str,
    question: str,
    lines: Sequence[Line],
    statements: Sequence[tuple[str, bool]],
    rows: Sequence[tuple[str, ...]],
    data: dict[str, Any],
    draw: Callable[[Path], list[Path]],
    columns: tuple[str, ...] = ("", "GPUs", *map(str, SIZES)),
) -> Study:
    sentences = tuple(
        f"{line.what}: published {line.published:g}, ours {line.ours:.3g} (simulated, off by {_off(line.ours, line.published)})."
        for line in lines
        if line.published is not None and line.unit == "x"
    )
    table = Shown(f"{name}: {question} (simulated)", columns, tuple(rows), SETTING, columns[2:])
    return Study(name, question, tuple(lines), tuple(statements), (*sentences, SIMULATED), {"found": data}, draw, table)


def _draw_sizes(
    name: str, question: str, by_model: dict[str, dict[str, dict[int, float]]], folder: Path, label: str = "GPUs"
) -> list[Path]:
    with picture(folder / f"{name}.svg", len(by_model), width=5.5 * len(by_model)) as (figure, axes):
        for axis, (model, found) in zip(axes, by_model.items()):
            for platform, of in found.items():
                axis.plot(range(len(of)), list(of.values()), "o-", color=COLOURS[platform], label=platform.upper())
            longest = max(found.values(), key=len)
            axis.set_xticks(range(len(longest)), list(map(str, longest)))
            axis.axhline(1, color=INK, linewidth=0.8)
            if most := published()[name].get(model):
                axis.axhline(most, color=INK, linewidth=1, linestyle="--", label="published: up to")
            axis.set(title=model.upper(), xlabel=label, ylabel="times faster")
            axis.set_ylim(bottom=0)
            axis.legend()
        figure.suptitle(f"{question} (simulated)", fontsize=11)
    return written(folder, name)


def _draw_parts(data: dict[str, Any], folder: Path) -> list[Path]:
    with picture(folder / "figure13.svg", len(data)) as (figure, axes):
        for axis, (peak, of) in zip(axes, data.items()):
            for at, key in enumerate(("baseline_ms", "dmt_ms")):
                below = 0.0
                for (phase, what), colour in zip(PHASES.items(), (BLUE, ORANGE, GREEN)):
                    axis.bar(at, of[key][phase], bottom=below, color=colour, label=what if at == 0 else None)
                    below += of[key][phase]
            axis.set_xticks([0, 1], ["strong baseline", "DMT 8T-DCN"])
            axis.set(title=f"matrix products at the peak of {peak.upper()}", ylabel="ms an iteration")
            axis.set_ylim(top=1.4 * max(sum(parts.values()) for parts in of.values()))  # room for the legend
            axis.legend()
        figure.suptitle("DCN on 64 H100, 16,384 samples a GPU (simulated)", fontsize=11)
    return written(folder, "figure13")
