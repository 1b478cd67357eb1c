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
    ("simulated wait for longest rank ms", "simulated.phases_ms.wait_for_longest_rank", "{:,.3f}".format, "ratio"),
    ("simulated host launch ms", "simulated.phases_ms.host_launch", "{:,.3f}".format, "ratio"),
    ("simulated input copy ms", "simulated.phases_ms.input_copy", "{:,.3f}".format, "ratio"),
    ("simulated other ms", "simulated.phases_ms.other", "{:,.3f}".format, "ratio"),
    ("planned bytes per rank", "plan.bytes_per_rank.max", human_bytes, "ratio"),
    ("table parameters", "plan.parameters", human_count, "ratio"),
)

#: Of a run whose config lacks the key.
NO_KEY = "no such key"
CHOICES = "choices."


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
    """Status and mode stand in the note where all have the same."""
    facts = {name: [str(run.result[name]) for run in runs] for name in ("status", "mode")}
    differ = [name for name, values in facts.items() if len(set(values)) > 1]
    rows = tuple((_names(runs)[i], run.folder.resolve().name, *(facts[name][i] for name in differ)) for i, run in enumerate(runs))
    same = ", ".join(f"{name} {values[0]}" for name, values in facts.items() if name not in differ)
    return Table("Runs", ("run", "folder", *differ), rows, f"All: {same}." if same else "")


def config_table(runs: Sequence[Run]) -> Table:
    """What differs, choices first. What only some choices of a group have is counted, where the choice itself differs."""
    configs, differences = [flat(run.config) for run in runs], config_differences(runs)
    chosen = [key.partition(".")[2] for key in differences if key.startswith(CHOICES)]
    rows, folded = [], dict[str, int]()
    for key in sorted(differences, key=lambda key: not key.startswith(CHOICES)):
        row, group = [_written(config, key) for config in configs], key.partition(".")[0]
        if group in chosen and (NO_KEY in row or key.endswith("._target_")):
            folded[group] = folded.get(group, 0) + 1
        else:
            rows.append((key, *row))
    notes = [] if differences else ["none: the same config"]
    if any(NO_KEY in row for row in rows):
        notes.append("No such key: another choice has none, or an earlier version had none.")
    if folded:
        counts = ", ".join(f"{count} of {group}" for group, count in folded.items())
        notes.append(f"Left out are keys that follow from the choices: {counts}. --json has them.")
    return Table("Config that differs", ("key", *_names(runs)), tuple(rows), " ".join(notes))


def _written(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return str(value) if value is not None else "null" if key in config else NO_KEY


def figures_table(runs: Sequence[Run]) -> Table:
    rows, same = [], []
    for name, path, write, against in FIGURES:
        values = [value_at(run.result, path) for run in runs]
        if values[0] is not None and len(set(values)) == 1:
            same.append(f"{name} {write(values[0])}")
        elif any(value is not None for value in values):
            rows.append((name, *(_cell(value, None if i == 0 else values[0], write, against) for i, value in enumerate(values))))
    names = tuple(_names(runs))
    note = "Against [1]: +/- is the difference, x the ratio. Measured figures are of the machine that each run trained on."
    notes = [note] if rows else [] if same else ["no figures: no run got so far"]
    return Table(
        "Figures", ("figure", *names), tuple(rows), " ".join([*notes, *([f"The same in all: {', '.join(same)}."] if same else [])]), names
    )


def _cell(value: float | None, base: float | None, write: Callable[[float], str], against: str) -> str:
    if value is None:
        return "absent"
    if not base:
        return write(value)
    return write(value) + (f" ({value - base:+.5f})" if against == "difference" else f" (x{value / base:.3f})")
