"""`python -m recsys_lab cpu_dlrm STUDY`: the CPU DLRM paper: tables and figures, published values beside ours."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "cpu_dlrm")
