"""`python -m recsys_lab partition`: features into towers, found on a short training or on a run's weights.

`probe`: one process trains a model for a few steps, or takes a run's tables. It gives what the features' embeddings are like. `find`:
affinity -> coordinates -> balanced groups -> a `Partition`. `picture`: DMT's figure 9 of a partition. `source`: from a run folder or
overrides to a partition.
"""

CHOICES = ("coherent", "diverse", "strided")
#: Dimensions that features are laid out in. The paper's plane is too narrow for many groups that are equally far from one another.
DIMS = 4
STEPS, SAMPLES = 500, 16_384
