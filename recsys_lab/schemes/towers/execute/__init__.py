"""The executor of DMT (arXiv 2403.00877): SPTT's steps a to f in place of a model's tables, and tower modules between e and f.

sptt         the walk-through of section 3.1.1, step by step
layout       who looks up what: the plan, read rank by rank
distribute   step a, and step c of ids
exchange     steps c, d and f: the permute of rows, and what travels inside a site and between peers
modules      tower modules, their gradients averaged within their site
build        all of that from a model and a plan
"""

from recsys_lab.executor.execution import Execution
from recsys_lab.schemes.towers.execute.build import run

EXECUTION = Execution(run)
