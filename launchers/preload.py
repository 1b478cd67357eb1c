"""What every rank needs, imported once in the server that ranks are forked from. No threads, no devices, no groups start here.

What is imported stays. So it is not searched for garbage: not a thousand times while it is made, which took a fifth of the time, nor in any
rank, which would copy the memory that it shares.
"""

import gc
from typing import Any


def _import() -> None:
    import torch
    from lightning_utilities.core import imports as installed

    imports: Any = installed
    available, has_gpu = imports.package_available, torch.cuda.is_available
    imports.package_available = lambda name: name != "matplotlib" and available(name)  # torchmetrics would import it, and nobody plots here
    torch.cuda.is_available = lambda: False  # FBGEMM asks: the driver would open here, and no rank could use what this process opened
    try:
        import torchrec.distributed.model_parallel  # noqa: F401

        import recsys_lab.pipeline
        import recsys_lab.train.rank  # noqa: F401
    finally:
        imports.package_available, torch.cuda.is_available = available, has_gpu


_collected = gc.isenabled()
gc.disable()
try:
    _import()
    gc.freeze()
finally:
    if _collected:
        gc.enable()
