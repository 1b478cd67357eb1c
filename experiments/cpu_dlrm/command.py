"""`python -m recsys_lab cpu_dlrm STUDY`: a table or figure of the CPU DLRM paper, the paper's values and ours."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "cpu_dlrm")
