"""Section VI-C: the small model on one V100. Simulated by each profile of a GPU's software."""

from __future__ import annotations

from experiments.cpu_dlrm.tables import published
from experiments.validation.cpu import system_of
from recsys_lab.config.choices import built
from recsys_lab.studies.study import Line, Study

PROFILES = ("torchrec", "hugectr")
BATCH = 2048


def run(name: str) -> Study:
    given = published()[name]
    low, high = given["expected_ms"]
    system = system_of("dlrm_small", "v100", 1, BATCH)
    ours = {software: system.simulated_ms(built("profile", software)) for software in PROFILES}
    lines = [Line(f"small on a V100, software as {software}", ms, None, "ms", "simulated") for software, ms in ours.items()]
    lines.append(Line("small on a V100, Caffe2: the release paper's own time", given["caffe2_ms"], None, "ms", "published"))
    statements = ((f"optimised software takes {low} to {high} ms", all(low <= ms <= high for ms in ours.values())),)
    notes = (
        "The 62 ms are another paper's, of Caffe2, which no profile stands for. The 10 to 15 ms are what the CPU paper expects of a GPU.",
    )
    return Study(name, "an iteration of the small model on a V100", tuple(lines), statements, notes)
