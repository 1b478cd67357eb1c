"""What every rank needs, imported once in the server that ranks are forked from. No threads, no devices, no groups start here."""

import lightning.pytorch  # noqa: F401
import torchrec.distributed.model_parallel  # noqa: F401

import recsys_lab.pipeline
import recsys_lab.train.rank  # noqa: F401
