"""Figure 9's model I under what the paper leaves open: width of ids and rows, number of tables, speed of look-ups on one host.

The paper's own figures leave one host 57.8 ms. With look-ups as slow as that, what 16 hosts take is a prediction. The shares of the memory
bandwidth on file, FBGEMM's in production, predict both.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.neo.priced import FP32, FP32_TABLES, HOSTS, QUANTISED, RANKS_PER_HOST, SIMULATED, Case, base, priced, published
from recsys_lab.base.progress import Progress
from recsys_lab.studies.study import Line, Study

#: MAD-Max's share of the memory bandwidth for model A. And one to draw a straight line to: an iteration on one host is linear in 1 / share.
QUICK, SLOW = 0.836, 0.2
AS_IT_IS = Case("neo_i", HOSTS, 2048, FP32_TABLES)
#: What the paper does not say, beside the look-ups.
OTHERS = {
    "FP32 tables": AS_IT_IS,
    "FP32 tables, ids of 4 bytes": replace(AS_IT_IS, id_bytes=4),
    "FP32 tables and all-to-alls": replace(AS_IT_IS, precision=FP32),
    "FP16 tables": replace(AS_IT_IS, precision=QUANTISED),
    "100 tables in FP32": replace(AS_IT_IS, every=2),
}
#: Of look-ups: as the profile has them; as a model of costs has them for A; as slow as one host's published time tells.
ON_FILE, QUICKER, TOLD = "as FBGEMM's in production (on file)", "as MAD-Max has them for A", "as one host's published time tells"


def run(name: str) -> Study:
    scaling, queries = published()["figure9"]["neo_i"], published()["table3"]["neo_i"]["queries"]
    one_host = AS_IT_IS.batch_of_gpu * RANKS_PER_HOST / (queries / HOSTS / scaling * 100) * 1e3
    lines = [Line("what 3.4 M queries/s at 75 % of linear leave one host", one_host, None, "ms", "published")]
    shares: dict[str, dict[str, float]] = {}
    with Progress(len(OTHERS), "model I", "settings") as bar:
        for what, case in OTHERS.items():
            told = share_for(case, one_host)
            lines.append(Line(f"{what}: look-ups' share of the memory bandwidth, as told", 100 * told, None, "%", "fitted"))
            lookups = {ON_FILE: None, QUICKER: (QUICK, QUICK), TOLD: (told, told)}
            shares[what] = {}
            for speed, pair in lookups.items():
                made = replace(case, lookups=pair)
                shares[what][speed] = share_of_linear(made)
                theirs = (scaling, queries / 1e6) if (what, speed) == ("FP32 tables", ON_FILE) else (None, None)
                title, origin = f"{what}, look-ups {speed}", "fitted" if speed == TOLD else "simulated"
                lines.append(Line(f"{title}: an iteration on one host", priced(replace(made, hosts=1)).ms, None, "ms", origin))
                lines.append(Line(f"{title}: share of linear, 1 to {HOSTS} hosts", shares[what][speed], theirs[0], "%", origin))
                lines.append(Line(f"{title}: queries a second", priced(made).queries / 1e6, theirs[1], "M/s", origin))
            bar.update()
    ours = {model: values_mb(model) for model in ("neo_a", "neo_i")}
    lines += [Line(f"{model}: pooled rows of a GPU's samples in FP16", mb, None, "MB", "counted") for model, mb in ours.items()]
    statements = (
        ("model A exchanges more than model I, as it has more tables (8.3)", ours["neo_a"] > ours["neo_i"]),
        ("16 hosts scale to 75 % within 10 points", abs(shares["FP32 tables"][ON_FILE] - scaling) < 10),
        ("with one host as slow as published they do, too", abs(shares["FP32 tables"][TOLD] - scaling) < 10),
    )
    notes = ("Tables that are left out leave their rows to the others. Each host count has its own plan by neo_4d.", SIMULATED)
    question = "what the scaling of model I hangs on that the paper does not say"
    return Study(name, question, tuple(lines), statements, notes, {"share": shares})


def share_of_linear(case: Case) -> float:
    """From one host to all, the batch of a GPU held, %."""
    return 100 * priced(replace(case, hosts=1)).ms / priced(case).ms


def share_for(case: Case, ms: float) -> float:
    """Of the memory bandwidth, forward and backward alike, with which one host takes so long."""
    times = [priced(replace(case, hosts=1, lookups=(share, share))).ms for share in (QUICK, SLOW)]
    slope = (times[1] - times[0]) / (1 / SLOW - 1 / QUICK)
    return 1 / (1 / QUICK + (ms - times[0]) / slope)


def values_mb(model: str) -> float:
    """What a GPU's samples get of all tables, in FP16, MB."""
    batch = published()["table3"][model]["batch_of_gpu"]
    return sum(2 * batch * table.dim for table in base(model).tables) / 1e6
