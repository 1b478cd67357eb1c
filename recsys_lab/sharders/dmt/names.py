"""The names of the tower partitioner's choices. This file imports no torch, which `affinity` needs."""

from __future__ import annotations

STRIDED, WEIGHTED = "strided", "weighted"
#: What a tower should hold -> f of the paper, from affinity I to distance D.
STRATEGIES = {"coherent": lambda affinity: 1.0 - affinity, "diverse": lambda affinity: affinity}
#: Where the absolute value of a cosine is taken. Of the mean over samples, |mean(R R^T)|, as section 3.3 does; or of each sample's first.
#: The second also sees pairs whose cosine changes its sign from sample to sample: a departure of ours.
OF_MEAN, OF_SAMPLES = ABSOLUTES = ("of_mean", "of_samples")
