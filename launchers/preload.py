"""What every rank needs, imported once in the server that ranks are forked from. No threads, no devices, no groups start here.

What is imported stays. So it is not searched for garbage: not a thousand times while it is made, which took a fifth of the time, nor in any
rank, which would copy the memory that it shares.
"""

import gc


def _import() -> None:
    import lightning.pytorch  # noqa: F401
    import torchrec.distributed.model_parallel  # noqa: F401

    import recsys_lab.pipeline
    import recsys_lab.train.rank  # noqa: F401


_collected = gc.isenabled()
gc.disable()
try:
    _import()
    gc.freeze()
finally:
    if _collected:
        gc.enable()
