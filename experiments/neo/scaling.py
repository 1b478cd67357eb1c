"""Figures 9 and 10: weak scaling to 16 hosts, and what an iteration of model A is made of. All of it simulated."""

from __future__ import annotations

from pathlib import Path

from experiments.neo.priced import OF_MODEL, QUANTISED, SIMULATED, Case, Priced, cluster, priced, published
from recsys_lab.base.progress import Progress
from recsys_lab.base.ranges import Hosts
from recsys_lab.errors import UserError
from recsys_lab.simulate.collectives import collective_ms
from recsys_lab.studies.pictures import BLUE, GREY, ORANGE, PINK, picture, written
from recsys_lab.studies.study import Line, Study

ALL_TO_ALL = ("all_to_all", "reduce_scatter", "all_gather")  # of rows and their gradients, by any scheme
#: What of `profile=neo` and its link is from MAD-Max's split of model A.
OF_MAD_MAX = ("dense", "all_reduce")
NOTES = (
    "neo_4d, FP16 tables of A and FP32 tables of I, FP16 and BF16 all-to-alls; rows in proportion to the hosts, the batch of a GPU held, "
    "as the paper has it (8.3).",
    SIMULATED,
)


def run(name: str, *, hosts: list[Hosts]) -> Study:
    """`hosts`: how many, rising. Raises UserError for fewer than two sizes."""
    if len(hosts) < 2 or sorted(set(hosts)) != hosts:
        raise UserError("two sizes or more, rising", where="hosts", given=hosts)
    return figure9(hosts) if name == "figure9" else figure10(hosts)


def by_hosts(model: str, hosts: list[int]) -> dict[int, Priced]:
    batch = published()["table3"][model]["batch_of_gpu"]
    with Progress(len(hosts), f"{model} on {hosts[0]} to {hosts[-1]} hosts", "plans") as bar:
        found = {}
        for count in hosts:
            found[count] = priced(Case(model, count, batch, OF_MODEL[model]))
            bar.update()
    return found


def figure9(hosts: list[int]) -> Study:
    """Throughput over that of the fewest hosts."""
    question = "how throughput grows with hosts, the batch of a GPU held"
    lines, shares, curves = [], {}, {}
    for model in ("neo_a", "neo_i"):
        queries = {count: found.queries for count, found in by_hosts(model, hosts).items()}
        curves[model] = queries
        first, last = hosts[0], hosts[-1]
        shares[model] = 100 * queries[last] / queries[first] / (last / first)
        theirs = published()["figure9"][model] if (first, last) == (1, 16) else None
        lines.append(Line(f"{model[-1].upper()}: share of linear, {first} to {last} hosts", shares[model], theirs, "%", "simulated"))
        lines += [Line(f"{model[-1].upper()} on {count} hosts", q / 1e6, None, "M/s", "simulated") for count, q in queries.items()]
    statements = (
        ("model I scales better than model A", shares["neo_i"] > shares["neo_a"]),
        ("more hosts are faster", all(list(q.values()) == sorted(q.values()) for q in curves.values())),
    )

    def draw(folder: Path) -> list[Path]:
        with picture(folder / "figure9.svg") as (_, (axis,)):
            for model, colour in (("neo_a", BLUE), ("neo_i", ORANGE)):
                first = curves[model][hosts[0]]
                axis.plot(hosts, [curves[model][h] / first for h in hosts], "o-", color=colour, label=f"model {model[-1].upper()}")
            axis.plot(hosts, [h / hosts[0] for h in hosts], color=GREY, label="linear")
            axis.set(xlabel="hosts of 8 A100", ylabel=f"throughput over {hosts[0]} host's")
            axis.set_title("Weak scaling on ZionEX (simulated)")
            axis.legend()
        return written(folder, "figure9")

    return Study("figure9", question, tuple(lines), statements, NOTES, {"queries": curves}, draw)


def split(found: Priced, hosts: int) -> dict[str, float]:
    """ms by what takes them, one after the other; `exposed`: of communication, what nothing hides."""
    on, steps = cluster(hosts), found.steps.steps
    parts = dict.fromkeys(("lookup", "dense", "all_to_all", "input", "all_reduce"), 0.0)
    for event in found.timeline.events:
        if not event.step.is_collective and event.step.kind != "host_to_device":
            parts["lookup" if event.step.kind in ("lookup", "update") else "dense"] += event.ms
    for step in steps:
        if step.is_collective:
            kind = "input" if step.phase == "input" else "all_to_all" if step.kind in ALL_TO_ALL else "all_reduce"
            parts[kind] += collective_ms(step, on)
    phases = found.simulated.phases_ms
    return parts | {"exposed": phases["exposed_embedding_comm"] + phases["exposed_dense_sync"], "iteration": found.ms}


def figure10(hosts: list[int]) -> Study:
    """Model A's iteration, serialised and exposed."""
    question = "what an iteration of model A is made of, one after the other and exposed"
    found = {count: split(made, count) for count, made in by_hosts("neo_a", hosts).items()}
    last, theirs = found[hosts[-1]], published()["figure10"]["mad_max"] if hosts[-1] == 16 else {}
    lines = [
        Line(f"{part}, {hosts[-1]} hosts", ms, theirs.get(part), "ms", "simulated", by_construction=part in OF_MAD_MAX)
        for part, ms in last.items()
    ]
    lines += [Line(f"{part}, {count} hosts", ms, None, "ms", "simulated") for count in hosts[:-1] for part, ms in found[count].items()]

    def grows(part: str) -> bool:
        values = [found[count][part] for count in hosts]
        return values == sorted(values)

    communication = sum(last[part] for part in ("all_to_all", "input", "all_reduce"))
    statements = (
        ("exposed communication is far below the sum of all-to-alls and all-reduce (8.3)", last["exposed"] < 0.75 * communication),
        ("all-to-all and all-reduce grow with hosts (8.3)", grows("all_to_all") and grows("all_reduce")),
        ("the all-reduce is mostly hidden (8.3)", _exposed_sync(hosts[-1]) < 0.5 * last["all_reduce"]),
    )
    notes = (
        *NOTES,
        "The figure has no numbers in the text. Published beside ours is MAD-Max's split for model A on 128 A100, a model of costs too; "
        "from it the dense arch's efficiency and the all-reduce's bandwidth were taken.",
    )
    return Study("figure10", question, tuple(lines), statements, notes, {"hosts": found}, lambda folder: _draw(folder, found))


def _exposed_sync(hosts: int) -> float:
    made = priced(Case("neo_a", hosts, published()["table3"]["neo_a"]["batch_of_gpu"], QUANTISED))
    return float(made.simulated.phases_ms["exposed_dense_sync"])


def _draw(folder: Path, found: dict[int, dict[str, float]]) -> list[Path]:
    colours = {"lookup": BLUE, "dense": GREY, "all_to_all": ORANGE, "input": "#f0d9a0", "all_reduce": PINK}
    with picture(folder / "figure10.svg") as (_, (axis,)):
        at = list(range(len(found)))
        below = [0.0] * len(found)
        for part, colour in colours.items():
            values = [parts[part] for parts in found.values()]
            axis.bar([x - 0.2 for x in at], values, 0.38, bottom=below, color=colour, label=part.replace("_", "-"))
            below = [a + b for a, b in zip(below, values)]
        iteration, exposed = ([parts[key] for parts in found.values()] for key in ("iteration", "exposed"))
        axis.bar([x + 0.2 for x in at], iteration, 0.38, color="none", edgecolor=GREY, label="iteration")
        axis.bar([x + 0.2 for x in at], exposed, 0.38, color="#bbbbbb", label="exposed communication")
        axis.set_xticks(at, [str(count) for count in found])
        axis.set(xlabel="hosts of 8 A100", ylabel="ms")
        axis.set_title("Model A: parts one after the other, and the iteration (simulated)")
        axis.legend()
    return written(folder, "figure10")
