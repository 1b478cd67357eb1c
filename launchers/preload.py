"""What every rank needs, imported once in the server that ranks are forked from. No threads, no devices, no groups start here.

What is imported stays. So it is not searched for garbage: not a thousand times while it is made, which took a fifth of the time, nor in any
rank, which would copy the memory that it shares.
"""

import gc
from typing import Any


def _import() -> None:
    from lightning_utilities.core import imports as installed

    imports: Any = installed
    available = imports.package_available
    imports.package_available = lambda name: name != "matplotlib" and available(name)  # torchmetrics would import it, and nobody plots here
    try:
        import lightning.pytorch  # noqa: F401
    finally:
        imports.package_available = available
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
