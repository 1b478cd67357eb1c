"""Table 3: the three models, counted on the modules of conf/model on the meta device, and how fast they are simulated to train."""

from __future__ import annotations

from dataclasses import replace

from experiments.neo.priced import OF_MODEL, Case, base, priced, published
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.models.workload import describe
from recsys_lab.studies.study import Line, Study

#: Training computes the gradients of inputs and of weights beside the forward pass.
PASSES = 3
QUESTION = "three models in production: sizes, work and throughput"
NOTES = (
    "conf/model/neo_*.yaml are written from the table; parameters and FLOPs are counted on the modules. Free choices: README.md.",
    "FLOPs are of one forward pass by our reading: three times as many, and gradients of as many weights, give MAD-Max's times (README). "
    "By the other, all of training, the dense arch is a third: a line has A with a third of its FLOPs.",
    "Throughput: neo_4d on 128 A100, FP16 tables (I: FP32), FP16 and BF16 all-to-alls; simulated, with a profile that is not fitted to it.",
)


def run(name: str) -> Study:
    lines: list[Line] = []
    for model, given in published()["table3"].items():
        lines += _counted(model, given)
    lines += [_queries(model) for model in ("neo_a", "neo_i")]
    other = priced(replace(_case("neo_a"), dense_share=1 / PASSES)).queries / 1e6
    lines.append(Line("A: queries a second, if 638 MFLOP are all of training", other, None, "M", "simulated"))
    achieved = published()["table3"]["neo_a"]["flops"] * priced(_case("neo_a")).queries / 1e6
    lines.append(
        Line(
            "A: FLOPs of a forward pass times queries",
            achieved,
            published()["effective_tflops"]["zionex"],
            "TFLOPS/s",
            "simulated",
            repeated=True,
        )
    )
    statements = (
        ("F is larger than the memory of 128 GPUs, with FP16 tables and one state a row too (8.5)", not _fits("neo_f")),
        ("A and I fit them", _fits("neo_a") and _fits("neo_i")),
    )
    return Study(name, QUESTION, tuple(lines), statements, NOTES)


def _counted(model: str, given: dict) -> list[Line]:
    of, letter = base(model), model[-1].upper()
    cost = describe(of.model, of.dense_features)
    dims = [table.dim for table in of.tables]
    lengths = [of.access[table.name].mean_length for table in of.tables]
    widths = [layer.n_out for layer in cost.layers]

    def chosen(what: str, ours: float, theirs: float) -> Line:
        return Line(f"{letter}: {what}", ours, theirs, "", "counted", by_construction=True)

    return [
        Line(f"{letter}: parameters", (cost.embedding_parameters + cost.dense_parameters) / 1e9, given["parameters"] / 1e9, "G", "counted"),
        Line(f"{letter}: FLOPs of a sample, forward", cost.forward_flops_per_sample / 1e6, given["flops"], "MFLOP", "counted"),
        chosen("tables", len(dims), given["tables"]) if model == "neo_a" else Line(f"{letter}: tables", len(dims), None, "", "counted"),
        chosen("least dimension", min(dims), given["columns"][0]),
        chosen("greatest dimension", max(dims), given["columns"][1]),
        chosen("mean dimension", sum(dims) / len(dims), given["dim"]),
        chosen("mean look-ups", sum(lengths) / len(lengths), given["length"]),
        chosen("layers", len(widths), given["layers"]),
        chosen("mean width of layers", sum(widths) / len(widths), given["layer"]),
    ]


def _case(model: str) -> Case:
    return Case(model, batch_of_gpu=published()["table3"][model]["batch_of_gpu"], precision=OF_MODEL[model])


def _queries(model: str) -> Line:
    theirs = published()["table3"][model]["queries"] / 1e6
    return Line(f"{model[-1].upper()}: queries a second", priced(_case(model)).queries / 1e6, theirs, "M", "simulated")


def _fits(model: str) -> bool:
    try:
        priced(_case(model))
    except PlanDoesNotFit:
        return False
    return True
