"""Figure 9's model I by what the paper does not say: how many tables it has, how wide ids and rows are, how fast rows are read."""

from __future__ import annotations

from dataclasses import replace

from experiments.neo.priced import HOSTS, QUANTISED, SIMULATED, Case, priced, published
from recsys_lab.data.progress import progress
from recsys_lab.precision import Precision
from recsys_lab.studies.study import Line, Study

FP32_TABLES = Precision("fp32_tables", table="fp32", forward_comm="fp16", backward_comm="bf16")
#: Shares of the memory bandwidth, forward and backward, that FBGEMM reaches in one production workload.
PRODUCTION = (0.647, 0.265)
AS_IT_IS = Case("neo_i", HOSTS, 2048, QUANTISED)
#: What the paper does not say, changed together from line to line.
OTHERS = {
    "400 tables, as in conf/model": AS_IT_IS,
    "ids of 4 bytes": replace(AS_IT_IS, id_bytes=4),
    "and tables in FP32": replace(AS_IT_IS, id_bytes=4, precision=FP32_TABLES),
    "and rows read as in production": replace(AS_IT_IS, id_bytes=4, precision=FP32_TABLES, lookups=PRODUCTION),
    "200 tables": replace(AS_IT_IS, every=2),
    "200 tables and all of these": replace(AS_IT_IS, every=2, id_bytes=4, precision=FP32_TABLES, lookups=PRODUCTION),
    "100 tables and all of these": replace(AS_IT_IS, every=4, id_bytes=4, precision=FP32_TABLES, lookups=PRODUCTION),
}


def run(name: str) -> Study:
    scaling, queries = published()["figure9"]["neo_i"], published()["table3"]["neo_i"]["queries"]
    cases = [replace(case, hosts=hosts) for case in OTHERS.values() for hosts in (1, HOSTS)]
    with progress(len(cases), "model I", "plan") as bar:
        for case in cases:
            priced(case)
            bar.update()
    share = {what: share_of_linear(case) for what, case in OTHERS.items()}
    lines = []
    for what, case in OTHERS.items():
        theirs = (scaling, queries / 1e6) if case == AS_IT_IS else (None, None)
        lines.append(Line(f"{what}: share of linear, 1 to {HOSTS} hosts", share[what], theirs[0], "%", "simulated"))
        lines.append(Line(f"{what}: queries a second", priced(case).queries / 1e6, theirs[1], "M/s", "simulated"))
        lines.append(Line(f"{what}: an iteration on one host", priced(replace(case, hosts=1)).ms, None, "ms", "simulated"))
    samples = AS_IT_IS.batch_of_gpu * 8
    one = samples / (queries / HOSTS / scaling * 100) * 1e3
    lines.append(Line("what 3.4 M queries/s at 75 % of linear leave one host", one, None, "ms", "published"))
    statements = (("some of these reaches 75 % within 10 points", max(share.values()) > scaling - 10),)
    notes = ("Tables that are left out leave their rows to the others. Each host count has its own plan by neo_4d.", SIMULATED)
    question = "what the scaling of model I hangs on that the paper does not say"
    return Study(name, question, tuple(lines), statements, notes, {"share": share})


def share_of_linear(case: Case) -> float:
    """From one host to all, the batch of a GPU held, %."""
    return 100 * priced(replace(case, hosts=1)).ms / priced(case).ms
