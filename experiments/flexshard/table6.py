"""Table 6: what the four collectives carry and how long they take."""

from __future__ import annotations

from experiments.flexshard.models import MODELS, TIERS, mean_length, paper_options, plan, published, tier_rows, tier_shares
from experiments.flexshard.times import (
    SHARDINGS,
    by_links,
    global_by_line,
    line_through_published,
    published_times,
    published_volumes,
    volumes,
)
from recsys_lab.report.sections import Table
from recsys_lab.studies.study import Line, Study

QUESTION = "what the collectives carry and how long they take"
COLLECTIVES = {
    "global_ms": "global all-to-all",
    "intra_ms": "intra-host all-to-all",
    "all_reduce_ms": "all-reduce of all ranks",
    "cross_ms": "all-reduce of peers",
}
#: The links of a100x32 were fitted to these times.
FITTED = ("global_ms", "intra_ms", "cross_ms")


def planned(model: str, sharding: str) -> tuple[dict[str, int], dict[str, float]]:
    """(rows, shares) of our plan's tiers, with the paper's options."""
    if sharding == "RW":
        return dict.fromkeys(TIERS, 0), {"replicated": 0.0, "host_sharded": 0.0, "row_sharded": 1.0}
    rows = tier_rows(plan(model, int(sharding[0]), **paper_options()))
    return rows, tier_shares(model, rows)


def run(name: str) -> Study:
    lines, shown = [], []
    for model in MODELS:
        for sharding in SHARDINGS:
            case, given = f"{model} {sharding}", published_volumes(model, sharding)
            ours = volumes(*planned(model, sharding), mean_length(model), model)
            elements = published().table6[model][sharding].global_elements
            lines.append(Line(f"{case}: elements of the global all-to-all, each way", ours.global_bytes / 4, elements, "elements"))
            links, paper = by_links(given), published_times(model, sharding)
            cells = [case]
            for field, what in COLLECTIVES.items():
                value, simulated = getattr(paper, field), getattr(links, field)
                cells.append(f"{value:g} / {simulated:.1f}" if value else "–")
                if value:
                    lines.append(Line(f"{case}: {what}", simulated, value, "ms", "simulated", by_construction=field in FITTED))
            on_line = global_by_line(given)
            lines.append(Line(f"{case}: global all-to-all, on the line", on_line, paper.global_ms, "ms", "simulated", True))
            shown.append((*cells, f"{on_line:.1f}", f"{ours.global_bytes / 4 / elements - 1:+.1%}"))
    columns = ("", "a2a global", "a2a intra", "ar all", "ar peers", "line", "elements")
    longer = [line.error for line in lines if line.what.endswith("RW: elements of the global all-to-all, each way") and line.error]
    start_ms, gb_s = line_through_published()
    errors = [abs(line.error) for line in lines if line.origin == "simulated" and "on the line" in line.what and line.error is not None]
    notes = (
        "Simulated at the sizes that the paper observed, on the links of a100x32. Those were fitted to this very table's "
        "all-to-alls and all-reduces of peers, so only the all-reduces of all ranks test the model: large ones are slower here than "
        "published, small ones faster.",
        f"Line: {start_ms:.1f} ms + bytes both ways / {gb_s:.1f} GB/s, fitted to these twelve times (off by {max(errors):.1%} at most).",
        "Elements: what our plan predicts of the global all-to-all against what was observed. Row-wise it is "
        f"{min(longer):.1%} to {max(longer):.1%} more: the mean length that makes table 5 memory-neutral is longer than that observed.",
    )
    statements = (("the reductions follow from the sizes printed beside them", _consistent()),)
    table = Table(f"table6: {QUESTION} (ms, published / simulated)", columns, tuple(shown), right=columns[1:])
    return Study(name, QUESTION, tuple(lines), statements, notes, {"line": {"start_ms": start_ms, "gb_s": gb_s}}, shown=table)


def _consistent() -> bool:
    """Whether each printed reduction is that of the sizes, to the digit printed or one more in the last place."""
    observed = published().table6
    return all(
        abs(100 * (1 - given[sharding].global_elements / given.RW.global_elements) - given[sharding].reduction) < 0.15
        for given in observed.values()
        for sharding in SHARDINGS[1:]
    )
