"""`python -m recsys_lab validate`: published and measured times beside simulated ones, and how far off they are.

Printed are the errors of each point, of each framework, and in all.

Predicted is a point by a fit without it (leave-one-out); on file, by the profile that users get, which is fitted to all of its points.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.validation import collectives, cpu, dlrm_v4, dmt, emulated, local, mlperf, neo, picture, placements, ratios
from experiments.validation.cases import FRAMEWORKS, cases, of_row
from experiments.validation.fit import KINDS, Fits, Found, Point, fit, of_systems, spread, systems_of, validate, with_figures
from experiments.validation.intervals import OF_DEVICES, OF_HOSTS, PROTOCOLS, coverage, errors_without, intervals, of_submitters, typical
from experiments.validation.models import published
from experiments.validation.order import orders
from recsys_lab.base.arguments import parser
from recsys_lab.base.files import path_of
from recsys_lab.base.progress import Progress
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config.choices import built
from recsys_lab.errors import UserError
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.simulate import Profile

SOFTWARE = (*FRAMEWORKS, "cpu", "neo", "dmt", "dlrm_v4")
#: Groups whose profile has another name.
PROFILES = {"dmt": "torchrec", "dlrm_v4": "torchrec"}
#: Groups of models of sequences.
SEQUENCES = ("dlrm_v4",)


def main(argv: list[str]) -> int:
    """Prints every point, and the mean errors."""
    line = parser("validate", "Published figures beside simulated ones: what is fitted, what is predicted, and how far off each is.")
    line.add_argument("--json", action="store_true", help="print the same as one JSON object")
    line.add_argument("--fit", action="store_true", help="print what a fit to all points gives for each profile, to be written into it")
    line.add_argument("--only", choices=[*SOFTWARE, "collectives"], help="one profile, or the collectives alone")
    line.add_argument(
        "--local", action="store_true", help="train the sharders here for a few steps, beside the simulation of cluster=local"
    )
    line.add_argument("--rounds", type=int, help="with --local, how often each is trained, in turns (2); medians count")
    line.add_argument(
        "--rows", metavar="FILE", help="simulate the runs of another table with mlperf_iterations.tsv's columns, fitted to nothing of it"
    )
    line.add_argument("--picture", metavar="FILE", help="also draw simulated against measured, an SVG file")
    line.add_argument("overrides", nargs="*", help="with --local, as for run.py, such as model=dlrm")
    given = line.parse_args(argv)
    _check_together(given)
    quiet_torchrec()
    if given.local:
        return _local(given.overrides, 2 if given.rounds is None else given.rounds, given.json)
    if given.rounds is not None:
        raise UserError("only runs here take turns", where="--rounds", given=given.rounds, remedy="add --local")
    if given.overrides:
        raise UserError("only runs here have a config", where="validate", given=" ".join(given.overrides), remedy="add --local")
    if given.rows is not None:
        return _rows(path_of(given.rows, "--rows"), given.json)
    file = None if given.picture is None else picture.out(given.picture)
    chosen = [name for name in SOFTWARE if given.only in (None, name)]
    if given.fit:
        print(json.dumps(for_yaml([name for name in chosen if published()[name].fitted]), indent=2))
        return 0
    found: list[Found] = []
    pairs: list[ratios.Pair] = []
    choices: list[ratios.Choice] = []
    with Progress(len(chosen), "validate", "profiles") as shown:
        for name in chosen:
            fits = fits_of(name)
            found += validate(fits, PROTOCOLS)
            pairs += ratios.pairs_of_fits(fits, fits.on_file)
            choices += ratios.choices_of_fits(fits)
            shown.update(1)
    if "torchrec" in chosen:
        pairs += [*placements.pairs(), *emulated.pairs()]
        choices += [placements.choice(), *emulated.choices()]
    if given.only in (None, "collectives"):
        found += collectives.found()
    if file is not None:
        picture.draw(found, file)
    _print(found, pairs + ratios.pairs_of_ratios(found), choices, given.json)
    return 0


def _check_together(given: argparse.Namespace) -> None:
    """Raises UserError for an option that would have no effect beside another."""
    chosen = [f"--{name}" for name in ("local", "rows", "fit", "only", "picture") if getattr(given, name) not in (None, False)]
    for alone, others in (("--local", chosen), ("--rows", chosen), ("--fit", [one for one in chosen if one == "--picture"])):
        for other in others:
            if alone in chosen and other != alone:
                raise UserError(f"it has no effect beside {alone}", where=other, remedy="drop one of the two")


def _print(found: Sequence[Found], pairs: Sequence[ratios.Pair], choices: Sequence[ratios.Choice], as_json: bool) -> None:
    made = summary(found, pairs, choices)
    if as_json:
        print(json.dumps(made, indent=2))
    else:
        _show(found, made)


def _rows(path: Path, as_json: bool) -> int:
    """The runs of another table, by the profiles on file."""
    found = []
    for row in mlperf.rows(path):
        case = of_row(row)
        found += validate(Fits.of([case.point], built("profile", case.software)))
    _print(found, [], [], as_json)
    return 0


def _local(overrides: Sequence[str], rounds: int, as_json: bool) -> int:
    if rounds < 1:
        raise UserError("too few", where="--rounds", given=rounds, allowed="1 or more")
    found = local.compare(overrides, rounds)
    made = local.summary(found)
    if as_json:
        print(json.dumps({"local": made}, indent=2))
    else:
        local.show(found, made)
    return 0


def points_of(name: str) -> list[Point[Profile]]:
    """The published points of one profile."""
    if name == "cpu":
        return cpu.points()
    if name in ("neo", "dmt", "dlrm_v4"):
        return {"neo": neo, "dmt": dmt, "dlrm_v4": dlrm_v4}[name].points()
    return [case.point for case in cases(name)]


def fits_of(name: str, profile: Profile | None = None) -> Fits[Profile]:
    """Of a profile's points, from the figures of `profile`; None: those on file."""
    given, names = profile or profile_of(name), list(published()[name].fitted)
    return Fits.of(points_of(name), given, names, [getattr(given, n) for n in names])


def profile_of(name: str) -> Profile:
    """What a group of points is simulated with."""
    found: Profile = built("profile", PROFILES.get(name, name))
    return found.of_sequences if name in SEQUENCES else found


def for_yaml(names: Sequence[str]) -> dict[str, dict[str, object]]:
    """What goes into the profiles' YAMLs. A profile that nothing on several hosts was fitted to has the error of all others there."""
    made = {name: fitted(name) for name in names}
    several = [error for _, found in made.values() for error in errors_without(found, OF_HOSTS, hosts=2)]
    for figures, found in made.values():
        if hosts := errors_without(found, OF_HOSTS, hosts=2) or several:
            figures["relative_error_hosts"] = typical(hosts)
    return {name: figures for name, (figures, _) in made.items()}


def fitted(name: str) -> tuple[dict[str, object], list[Found]]:
    """Figures fitted to all systems of a profile, the points, their systems, and the errors of predictions; and what was predicted."""
    profile, names, points = profile_of(name), list(published()[name].fitted), points_of(name)
    figures = fit(of_systems(points), profile, names, [getattr(profile, n) for n in names], with_figures)
    fits = fits_of(name, replace(profile, **figures))
    found = validate(fits, PROTOCOLS)
    made = {
        **{n: float(f"{value:.3g}") for n, value in figures.items()},
        "spread": spread(fits.line, names) if fits.line is not None else [],
        "relative_error": typical(errors_without(found, ("system",))),
        "relative_error_outside": typical(errors_without(found, OF_DEVICES)),
        **({"tuning_hosts": apart} if (apart := of_submitters(found, hosts=2)) else {}),
        "fitted_systems": systems_of(points),
        "fitted_on": {point.what: point.published for point in points},
    }
    return made, found


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _mape_without(found: Sequence[Found], protocol: str) -> float | None:
    errors = [abs(point.error_without(protocol)) for point in found if protocol in point.predictions]
    return 100 * mean(errors) if errors else None


def _mape(found: Sequence[Found], *, left_out: bool = False) -> float | None:
    """Mean absolute percentage error; None of no points."""
    return 100 * mean(abs(p.left_out_error if left_out else p.error) for p in found) if found else None


def summary(found: Sequence[Found], pairs: Sequence[ratios.Pair] = (), choices: Sequence[ratios.Choice] = ()) -> dict[str, object]:
    """The figures of the whole: mean absolute percentage errors of times, of everything, by kind and by group, each system once; what
    intervals hold; how often the faster run is picked; and whether sharders come in their published order.
    """
    by_group = {group: [point for point in found if point.group == group] for group in dict.fromkeys(point.group for point in found)}
    profiles = {name: profile_of(name) for name in SOFTWARE if name in by_group}
    order, own_intervals = orders(found), intervals(found, profiles)
    covered = coverage(found, own_intervals)
    told = ratios.summary(pairs, choices)
    by_kind = {kind: [point for point in found if point.kind == kind] for kind in KINDS}
    return {
        "open_mape": _mape(by_kind["time"]),
        "leave_one_out_mape": _mape(by_kind["time"], left_out=True),
        "runs": sum(len(point.runs) for point in by_kind["time"]),
        **{f"leave_{name}_out_mape": _mape_without(by_kind["time"], name) for name in PROTOCOLS},
        "interval_coverage": covered["left_out_whole"] if covered["left_out_whole"] is not None else covered["file"],
        "coverage": covered,
        "all_mape": _mape(found),
        "all_leave_one_out_mape": _mape(found, left_out=True),
        "kinds": {
            kind: {
                "points": len(points),
                "mape": _mape(points),
                "leave_one_out_mape": _mape(points, left_out=True),
                **({"kept": sum(bool(point.holds) for point in points)} if kind == "bound" else {}),
            }
            for kind, points in by_kind.items()
        },
        "groups": {
            group: {
                "points": len(points),
                "mape": _mape(points),
                "leave_one_out_mape": _mape(points, left_out=True),
                **{f"leave_{name}_out_mape": _mape_without(points, name) for name in PROTOCOLS},
                "time_mape": _mape([point for point in points if point.kind == "time"]),
                "fitted": list(published()[group].fitted) if group in SOFTWARE else list(collectives.FITTED) * (group == "flexshard"),
            }
            for group, points in by_group.items()
        },
        "orders": {"right": sum(right for _, right in order), "of": len(order), "wrong": [what for what, right in order if not right]},
        **{
            key: value
            for key, value in told.items()
            if key in ("pick_best_rate", "brier", "log_score", "reliability", "pairs_with_probability")
        },
        "ratios": told,
        "points": [
            {
                "group": point.group,
                "what": point.what,
                "kind": point.kind,
                "unit": point.point.unit,
                "runs": point.runs,
                "published": point.published,
                "simulated": point.simulated,
                "error": point.error,
                "left_out": point.left_out,
                "left_out_error": point.left_out_error,
                "outside": {name: by.simulated for name, by in point.predictions.items()},
                "fitted": point.fitted,
                "holds": point.holds,
                "interval": {name: [one.low, one.high] for name, one in own.items()},
            }
            for point, own in zip(found, own_intervals)
        ],
    }


def _show(found: Sequence[Found], made: dict) -> None:
    percent = partial("{:+.1%}".format)
    for group, figures in made["groups"].items():
        rows = [
            (
                p.what,
                f"{'at least ' if p.point.bound else ''}{p.published:.4g}",
                f"{p.simulated:.4g} {p.point.unit}",
                ("kept, " if p.holds else "broken, ") * p.point.bound + percent(p.error),
                percent(p.left_out_error) if p.fitted else "–",
            )
            for p in found
            if p.group == group
        ]
        fitted_to = f"fitted: {', '.join(figures['fitted'])}" if figures["fitted"] else "nothing fitted to these"
        note = f"Mean error {figures['mape']:.1f} %, predicted {figures['leave_one_out_mape']:.1f} %; {fitted_to}."
        columns = ("point", "published", "simulated", "error", "predicted without it")
        print_table(console(), Table(group, columns, tuple(rows), note, columns[1:]))
    order = made["orders"]
    for kind, of in made["kinds"].items():
        if of["points"]:
            kept = f", {of['kept']} kept" if kind == "bound" else ""
            print(f"{of['points']} {kind}s{kept}: mean error {of['mape']:.1f} %, predicted {of['leave_one_out_mape']:.1f} %")
    for name in PROTOCOLS:
        if (of := made[f"leave_{name}_out_mape"]) is not None:
            print(f"times predicted without their {name}: mean error {of:.1f} %")
    held = made["coverage"]
    if held["left_out_whole"] is not None:
        print(f"90 % intervals hold {held['left_out_whole']:.0%} of {held['of_left_out_whole']} systems of which a fit had", end=" ")
        print(f"no board, network or scale. They reach to {held['width_left_out_whole']:.2f} times their lower end,", end=" ")
        print(f"on fitted systems to {held['width_fitted']:.2f}.")
    elif held["file"] is not None:
        print(f"90 % intervals hold {held['file']:.0%} of these runs")
    if made["ratios"]["pairs"]:
        print(ratios.line(made["ratios"]))
    print(f"all {len(found)} points: mean error {made['all_mape']:.1f} %, predicted {made['all_leave_one_out_mape']:.1f} %;", end=" ")
    print(f"sharders in their published order: {order['right']} of {order['of']}", *order["wrong"], sep="; " if order["wrong"] else "")
