"""Two simulated iterations of one model: the ids of a batch wait for it, and they travel while the batch before computes."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.experiment import of_words
from recsys_lab.planning import plan_for, price
from recsys_lab.report.charts import style, svg_file
from recsys_lab.report.timeline_chart import OTHER, PHASES
from recsys_lab.simulate.placed import STREAMS, Event
from recsys_lab.simulate.trace import TRACKS

LINE = "mode=simulate model=dcn_mlperf data=random cluster=h100x64 sharder=torchrec"
#: What stands above an iteration -> what is added to the line.
ITERATIONS = {
    "without overlap": "sharder.executor.pipeline=false",
    "with overlap": "sharder.executor.pipeline=true",
}


def timeline_figure() -> str:
    """SVG text: a panel an iteration on one scale of time, a lane a stream of the slowest rank."""
    quiet_torchrec()
    iterations = {}
    for title, words in ITERATIONS.items():
        experiment = of_words([*LINE.split(), words], where="docs/generator/timelines.py")
        simulated, timeline = price(plan_for(experiment, experiment.open_data()), experiment.profile)
        iterations[f"{title}: {simulated.iteration_ms:.1f} ms ({words})"] = [event for event in timeline.events if event.ms > 0]
    lanes = [stream for stream in STREAMS if any(event.stream == stream for events in iterations.values() for event in events)]
    with rc_context(style(11, "timeline")):
        figure = Figure(figsize=(6.6, 0.9 + len(iterations) * (0.75 + 0.3 * len(lanes))), layout="constrained")
        panels = figure.subplots(len(iterations), 1, sharex=True)
        for panel, (title, events) in zip(panels, iterations.items()):
            _iteration(panel, title, events, lanes)
        panels[-1].set_xlabel("ms, simulated")
        marks = [Patch(color=fill, label=phase) for phase, fill in PHASES.items()]
        figure.legend(handles=marks, loc="outside lower left", ncols=4, frameon=False)
        return svg_file(figure)


def _iteration(panel: Axes, title: str, events: list[Event], lanes: list[str]) -> None:
    for event in events:
        fill = PHASES.get(event.step.phase, OTHER)
        panel.barh(lanes.index(event.stream), event.ms, left=event.start_ms, height=0.7, color=fill, edgecolor="#ffffff88", linewidth=0.4)
    names = [TRACKS[1 + STREAMS.index(stream)].removesuffix(" (simulated)") for stream in lanes]
    panel.set_yticks(range(len(lanes)), names)
    panel.set_ylim(len(lanes) - 0.4, -0.6)
    panel.set_title(title, loc="left", size=11)
    panel.grid(axis="x", linewidth=0.5)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(left=False)
