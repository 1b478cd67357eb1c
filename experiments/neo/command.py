"""`python -m recsys_lab neo STUDY`: a table or figure of Neo, the paper's values and ours."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "neo")
