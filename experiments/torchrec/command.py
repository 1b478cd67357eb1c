"""`python -m recsys_lab torchrec STUDY`: TorchRec's own measurements: published values beside simulated ones."""

from __future__ import annotations

from functools import partial

from recsys_lab.studies import paper_command

main = partial(paper_command.main, "torchrec")
