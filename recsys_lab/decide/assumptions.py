"""What an answer takes for granted, and what it rests on: a reader who has another model, batch or software sees it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.combinations import Combination
from recsys_lab.decide.rows import Row
from recsys_lab.simulate.posterior import error_on
from recsys_lab.units import counted


def assumptions_of(combination: Combination, data: DataSet) -> dict[str, Any]:
    """Of the chosen combination, by name. Most are defaults that nobody gave."""
    experiment = combination.experiment
    model: Mapping[str, Any] = experiment.config.get("model", {})
    layers = {name: model[name] for name in sorted(model) if name.endswith("_layers") and model[name] is not None}
    exponent = experiment.config.get("data", {}).get("exponent")
    growth = {"length_growth": experiment.simulate.length_growth, "skew_growth": experiment.simulate.skew_growth}
    return {
        "model": experiment.choices.get("model"),
        **layers,
        "dense_features": data.dense_features,
        "batch": combination.batch,
        "batch_per_device": experiment.batch_size,
        "skew": f"power law of {exponent}" if exponent is not None else f"as measured of data={experiment.choices.get('data')}",
        **{name: value for name, value in growth.items() if value != 1},
        "dense_optimizer": experiment.optimizer.dense.name,
        "table_optimizer": combination.optimizer,
        "pipeline": experiment.sharder.executor.pipeline,
    }


def evidence_of(combination: Combination, row: Row) -> dict[str, Any]:
    """Of the profile that the row is priced by: its points, the devices and hosts that they are of, and its error on the row's system."""
    profile = next(one for one in combination.profiles if one.name == row.profile)
    return {
        "profile": profile.name,
        "points": len(profile.fitted_on),
        "systems": dict(profile.fitted_systems),
        "relative_error": error_on(profile, combination.experiment.cluster),
        "extrapolates": row.extrapolates,
    }


def assumption_words(assumptions: Mapping[str, Any], evidence: Mapping[str, Any]) -> str:
    """Both in one paragraph."""
    layers = [f"{name.replace('_', ' ')} {'-'.join(map(str, widths))}" for name, widths in assumptions.items() if isinstance(widths, list)]
    pipeline = "sends the next batch's ids ahead" if assumptions["pipeline"] else "sends no ids ahead"
    taken = [
        f"model {assumptions['model']}",
        *layers,
        f"{counted(assumptions['dense_features'], 'dense feature')}",
        f"{assumptions['batch_per_device']:,} samples a device",
        f"skew {assumptions['skew']}",
        *(f"histories {assumptions[name]:g} times as long" for name in ("length_growth",) if name in assumptions),
        *(f"frequencies to the power {assumptions[name]:g}" for name in ("skew_growth",) if name in assumptions),
        f"{assumptions['dense_optimizer']} for the dense part",
        f"a pipeline that {pipeline}",
    ]
    systems = ", ".join(f"{counted(hosts, 'host')} of {device}" for device, hosts in evidence["systems"].items())
    rests = f"It rests on profile {evidence['profile']}"
    rests += (
        f", fitted to {counted(evidence['points'], 'published time')} of {systems}"
        if systems
        else ", which was fitted to no published time"
    )
    error = evidence["relative_error"]
    rests += f"; its error on this system is {error:.0%}" if error is not None else ""
    return f"Assumed: {', '.join(taken)}. {rests}."
