"""Figures 10 and 11 by what the paper does not say: how much bandwidth its network loses with the scale, and where 26 towers lie.

Figure 5 shows an all-to-all that falls with the number of GPUs, without numbers in the text. Beyond 16 hosts the paper has 26 towers on 32
and 64 hosts, and does not say which hosts share one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from experiments.dmt.figures import SIMULATED
from experiments.dmt.speed import GPUS_PER_HOST, SIZES, Case, price_all, speed_up
from recsys_lab.studies.pictures import picture, written
from recsys_lab.studies.study import Line, Study

PLATFORM = "h100"
FALLS = (0.0, 0.1, 0.15, 0.2, 0.25)
#: The paper's last two sizes with as many hosts for each tower, and sizes with one and two hosts for each of 26.
SPREAD = {208: 26, 256: 16, 416: 26, 512: 16}
#: Of the links on file.
OWN = 0.15


def run(name: str) -> Study:
    """DLRM's speed-up over the strong baseline, and over SPTT alone, by the network's fall and by where towers lie."""
    cases = {fall: {gpus: Case("dlrm", PLATFORM, gpus, "dmt", fall=fall) for gpus in SIZES} for fall in FALLS}
    spread = {gpus: Case("dlrm", PLATFORM, gpus, "dmt", most_towers=towers) for gpus, towers in SPREAD.items()}
    price_all([case for of in cases.values() for case in of.values()] + list(spread.values()), name)
    found = {
        over: {fall: {gpus: speed_up(case, over) for gpus, case in of.items()} for fall, of in cases.items()}
        for over in ("baseline", "sptt")
    }
    lines = [
        Line(f"a fall of {fall:g} a doubling, {gpus} GPUs: over {over}", x, None, "x", "simulated")
        for over, by_fall in found.items()
        for fall, of in by_fall.items()
        for gpus, x in of.items()
    ]
    for gpus, case in spread.items():
        lines += [
            Line(
                f"{gpus} GPUs, {case.towers} towers of {gpus // GPUS_PER_HOST // case.towers} hosts: over {over}",
                speed_up(case, over),
                None,
                "x",
                "simulated",
            )
            for over in found
        ]
    own = found["baseline"]
    statements = (
        ("the speed-up over the baseline grows with the scale, with our network's fall", _rises(own[OWN])),
        ("the more a network falls, the more it grows", _rises({fall: of[SIZES[-1]] / of[SIZES[0]] for fall, of in own.items()})),
    )
    notes = (
        "DLRM on H100, as many towers as hosts up to 26. A fall is what an all-to-all loses of its bandwidth with each doubling of "
        "the ranks on other hosts that a rank sends to.",
        SIMULATED,
    )
    question = "what the trends of figures 10 and 11 hang on"
    return Study(name, question, tuple(lines), statements, notes, {"found": found}, partial(_draw, name, own))


def _rises(of: dict) -> bool:
    return list(of.values()) == sorted(of.values())


def _draw(name: str, found: dict[float, dict[int, float]], folder: Path) -> list[Path]:
    with picture(folder / f"{name}.svg") as (_, (axis,)):
        for fall, of in found.items():
            axis.plot(range(len(of)), list(of.values()), "o-", label=f"{fall:.0%} a doubling")
        axis.set_xticks(range(len(SIZES)), list(map(str, SIZES)))
        axis.set(xlabel="GPUs", ylabel="times faster", title="DLRM, DMT over the strong baseline, by the network's fall (simulated)")
        axis.set_ylim(bottom=0)
        axis.legend()
    return written(folder, name)
