"""The pictures of the pages: plans of one small model, made now by the planners themselves, drawn as maps."""

from __future__ import annotations

from recsys_lab.experiment import of_words
from recsys_lab.planning import plan_for
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.report.plan_map import plan_map

#: Six tables of a DLRM on two hosts of four A100s: the line that a reader can run.
LINE = (
    "mode=plan model=dlrm cluster=a100 cluster.hosts=2 cluster.ranks_per_host=4 data=random "
    "data.rows_per_table=[200000,3000000,50000,1000,8000000,400000] data.exponent=1.15"
)
#: The page's style does not reach into a picture of its own.
STYLE = 'text { font: 12px "DejaVu Sans", sans-serif; fill: #444 } .strong { font-weight: 600 } .axis { stroke: #777 }'
#: File name -> what is added to the line.
SHARDERS = {
    "torchrec": "sharder=torchrec",
    "torchrec_columns": "sharder=torchrec_strong",
    "torchrec_row_wise": "sharder=torchrec_row_wise",
    "neo_4d": "sharder=neo_4d",
    "flexshard_2tier": "sharder=flexshard_2tier",
    "flexshard_3tier": "sharder=flexshard_3tier",
    "dmt": "sharder=dmt",
}


def plan_figures() -> dict[str, str]:
    """A map a sharder, as SVG files of their own."""
    quiet_torchrec()
    return {name: _drawn(words) for name, words in SHARDERS.items()}


def _drawn(sharder: str) -> str:
    experiment = of_words([*LINE.split(), *sharder.split()], where="docs/generator/figures.py")
    plan = plan_for(experiment, experiment.open_data()).plan
    picture = plan_map(plan, sharder)
    opened = picture.index(">") + 1
    head = picture[:opened].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return f"{head}<style>{STYLE}</style>{picture[opened:]}"
