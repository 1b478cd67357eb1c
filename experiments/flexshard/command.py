"""`python -m recsys_lab flexshard STUDY`: FlexShard: tables and figures of its paper, published values beside ours."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "flexshard")
