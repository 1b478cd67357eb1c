"""`python -m recsys_lab dmt STUDY`: DMT: tables and figures of its paper, published values beside ours."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "dmt")
