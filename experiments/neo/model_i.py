"""Figure 9's model I by what the paper does not say: the width of ids and rows, the number of tables, the speed of look-ups on one host.

The paper's own figures leave one host 57.8 ms. With look-ups as slow as that, what 16 hosts take is a prediction.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.neo.priced import HOSTS, QUANTISED, RANKS_PER_HOST, SIMULATED, Case, base, priced, profile, published
from recsys_lab.data.progress import progress
from recsys_lab.precision import Precision
from recsys_lab.studies.study import Line, Study

FP32_TABLES = Precision("fp32_tables", table="fp32", forward_comm="fp16", backward_comm="bf16")
#: Shares of the memory bandwidth, forward and backward, that FBGEMM reaches in one production workload.
PRODUCTION = (0.647, 0.265)
AS_IT_IS = Case("neo_i", HOSTS, 2048, QUANTISED)
#: A share of the memory bandwidth to draw a straight line from: an iteration on one host is linear in 1 / share.
SLOW = 0.2
#: What the paper does not say, beside the look-ups.
OTHERS = {
    "FP16 tables": AS_IT_IS,
    "FP16 tables, ids of 4 bytes": replace(AS_IT_IS, id_bytes=4),
    "FP32 tables": replace(AS_IT_IS, precision=FP32_TABLES),
    "FP32 tables, ids of 4 bytes": replace(AS_IT_IS, precision=FP32_TABLES, id_bytes=4),
    "100 tables in FP16": replace(AS_IT_IS, every=2),
}
#: Of look-ups: as the profile has them; as measured in production; as slow as one host's published time tells.
FAST, MEASURED, TOLD = "on file", "as FBGEMM's in production", "as one host's published time tells"


def run(name: str) -> Study:
    scaling, queries = published()["figure9"]["neo_i"], published()["table3"]["neo_i"]["queries"]
    one_host = AS_IT_IS.batch_of_gpu * RANKS_PER_HOST / (queries / HOSTS / scaling * 100) * 1e3
    lines = [Line("what 3.4 M queries/s at 75 % of linear leave one host", one_host, None, "ms", "published")]
    shares: dict[str, dict[str, float]] = {}
    with progress(len(OTHERS), "model I", "setting") as bar:
        for what, case in OTHERS.items():
            told = share_for(case, one_host)
            lines.append(Line(f"{what}: look-ups' share of the memory bandwidth, as told", 100 * told, None, "%", "fitted"))
            lookups = {FAST: None, MEASURED: PRODUCTION, TOLD: (told, told)}
            shares[what] = {}
            for speed, pair in lookups.items():
                made = replace(case, lookups=pair)
                shares[what][speed] = share_of_linear(made)
                theirs = (scaling, queries / 1e6) if (what, speed) == ("FP16 tables", FAST) else (None, None)
                title, origin = f"{what}, look-ups {speed}", "fitted" if speed == TOLD else "simulated"
                lines.append(Line(f"{title}: an iteration on one host", priced(replace(made, hosts=1)).ms, None, "ms", origin))
                lines.append(Line(f"{title}: share of linear, 1 to {HOSTS} hosts", shares[what][speed], theirs[0], "%", origin))
                lines.append(Line(f"{title}: queries a second", priced(made).queries / 1e6, theirs[1], "M/s", origin))
            bar.update()
    ours = {model: values_mb(model) for model in ("neo_a", "neo_i")}
    lines += [Line(f"{model}: pooled rows of a GPU's samples in FP16", mb, None, "MB", "counted") for model, mb in ours.items()]
    statements = (
        ("model A exchanges more than model I, as it has more tables (8.3)", ours["neo_a"] > ours["neo_i"]),
        ("with one host as slow as published 16 hosts scale to 75 % within 10 points", abs(shares["FP32 tables"][TOLD] - scaling) < 10),
    )
    notes = ("Tables that are left out leave their rows to the others. Each host count has its own plan by neo_4d.", SIMULATED)
    question = "what the scaling of model I hangs on that the paper does not say"
    return Study(name, question, tuple(lines), statements, notes, {"share": shares})


def share_of_linear(case: Case) -> float:
    """From one host to all, the batch of a GPU held, %."""
    return 100 * priced(replace(case, hosts=1)).ms / priced(case).ms


def share_for(case: Case, ms: float) -> float:
    """Of the memory bandwidth, forward and backward alike, with which one host takes so long."""
    fast = profile().lookup_efficiency_forward
    times = [priced(replace(case, hosts=1, lookups=(share, share))).ms for share in (fast, SLOW)]
    slope = (times[1] - times[0]) / (1 / SLOW - 1 / fast)
    return 1 / (1 / fast + (ms - times[0]) / slope)


def values_mb(model: str) -> float:
    """What a GPU's samples get of all tables, in FP16, MB."""
    batch = published()["table3"][model]["batch_of_gpu"]
    return sum(2 * batch * table.dim for table in base(model).tables) / 1e6
