"""`python -m recsys_lab dlrm_v4 STUDY`: DLRMv4's published times beside simulated ones."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "dlrm_v4")
