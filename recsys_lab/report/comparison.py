"""Runs side by side: the config keys that differ, and every figure, as tables of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recsys_lab.record.run_folder import Run, flat, value_at
from recsys_lab.report.sections import Table
from recsys_lab.units import human_bytes, human_count

#: Figures of the record: name, path into result.json, format, and whether a difference or a ratio says more.
FIGURES: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("validation AUC", "quality.validation.auc", "{:.5f}".format, "difference"),
    ("validation NE", "quality.validation.ne", "{:.5f}".format, "difference"),
    ("validation log loss", "quality.validation.log_loss", "{:.5f}".format, "difference"),
    ("validation calibration", "quality.validation.calibration", "{:.4f}".format, "difference"),
    ("test AUC", "quality.test.auc", "{:.5f}".format, "difference"),
    ("test NE", "quality.test.ne", "{:.5f}".format, "difference"),
    ("validation NDCG@10", "quality.validation.ndcg_10", "{:.5f}".format, "difference"),
    ("test NDCG@10", "quality.test.ndcg_10", "{:.5f}".format, "difference"),
    ("test hit rate@10", "quality.test.hit_rate_10", "{:.5f}".format, "difference"),
    ("measured examples/s", "measured.examples_per_second", "{:,.0f}".format, "ratio"),
    ("measured iteration ms", "measured.iteration_ms.median", "{:,.3f}".format, "ratio"),
    ("measured peak memory", "measured.peak_memory_bytes", human_bytes, "ratio"),
    ("simulated examples/s", "simulated.examples_per_second", "{:,.0f}".format, "ratio"),
    ("simulated iteration ms", "simulated.iteration_ms", "{:,.3f}".format, "ratio"),
    ("simulated compute ms", "simulated.phases_ms.compute", "{:,.3f}".format, "ratio"),
    ("simulated exposed exchange ms", "simulated.phases_ms.exposed_embedding_comm", "{:,.3f}".format, "ratio"),
    ("simulated exposed dense sync ms", "simulated.phases_ms.exposed_dense_sync", "{:,.3f}".format, "ratio"),
    ("simulated exposed store ms", "simulated.phases_ms.exposed_store", "{:,.3f}".format, "ratio"),
    ("simulated host launch ms", "simulated.phases_ms.host_launch", "{:,.3f}".format, "ratio"),
    ("simulated input copy ms", "simulated.phases_ms.input_copy", "{:,.3f}".format, "ratio"),
    ("simulated other ms", "simulated.phases_ms.other", "{:,.3f}".format, "ratio"),
    ("planned bytes per rank", "plan.bytes_per_rank.max", human_bytes, "ratio"),
    ("table parameters", "plan.parameters", human_count, "ratio"),
)

#: Of a run whose config lacks the key.
NO_KEY = "no such key"


def config_differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The flat config keys whose values differ, with each run's value; None where a run has no such key."""
    flats = [flat(run.config) for run in runs]
    keys = list(dict.fromkeys(key for one in flats for key in one))
    return {key: [one.get(key) for one in flats] for key in keys if any(one.get(key) != flats[0].get(key) for one in flats[1:])}


def figure_values(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Each figure's value in each run, None where it is absent."""
    return {name: [value_at(run.result, path) for run in runs] for name, path, *_ in FIGURES}


def _names(runs: Sequence[Run]) -> list[str]:
    return [f"[{i}]" for i in range(1, len(runs) + 1)]


def runs_table(runs: Sequence[Run]) -> Table:
    rows = [(name, run.folder.resolve().name, run.result["status"], run.result["mode"]) for name, run in zip(_names(runs), runs)]
    return Table("Runs", ("run", "folder", "status", "mode"), tuple(rows))


def config_table(runs: Sequence[Run]) -> Table:
    configs = [flat(run.config) for run in runs]
    rows = [(key, *(_written(config, key) for config in configs)) for key in config_differences(runs)]
    lacks = any(NO_KEY in row for row in rows)
    note = "No such key: another choice has none, or an earlier version had none." if lacks else "" if rows else "none: the same config"
    return Table("Config that differs", ("key", *_names(runs)), tuple(rows), note)


def _written(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return str(value) if value is not None else "null" if key in config else NO_KEY


def figures_table(runs: Sequence[Run]) -> Table:
    rows = []
    for name, path, write, against in FIGURES:
        values = [value_at(run.result, path) for run in runs]
        if any(value is not None for value in values):
            rows.append((name, *(_cell(value, None if i == 0 else values[0], write, against) for i, value in enumerate(values))))
    names = tuple(_names(runs))
    note = "Against [1]: +/- is the difference, x the ratio. Measured figures are of the machine that each run trained on."
    return Table("Figures", ("figure", *names), tuple(rows), note if rows else "no figures: no run got so far", names)


def _cell(value: float | None, base: float | None, write: Callable[[float], str], against: str) -> str:
    if value is None:
        return "absent"
    if not base:
        return write(value)
    return write(value) + (f" ({value - base:+.5f})" if against == "difference" else f" (x{value / base:.3f})")
