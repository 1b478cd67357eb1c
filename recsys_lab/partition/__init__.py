"""`python -m recsys_lab partition`: features into towers, found on a short training or on a run's weights.

`probe`: one process trains a model for a few steps, and gives what the features' embeddings are like. `of_run`: a run's tables. `find`:
affinity -> coordinates -> balanced groups -> a `Partition`. `picture`: DMT's figure 9 of a partition. `source`: from a run folder or
overrides to a partition. `kept`: the towers of a run that finds them itself.
"""

from recsys_lab.sharders.dmt.names import STRATEGIES, STRIDED

CHOICES = (*STRATEGIES, STRIDED)
#: Dimensions that features are laid out in. The paper's plane is too narrow for many groups that are equally far from one another.
DIMS = 4
STEPS, SAMPLES = 500, 16_384
