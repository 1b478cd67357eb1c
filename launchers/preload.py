"""What every rank needs, imported once in the server that ranks are forked from. No threads, no devices, no groups are left here.

What is imported stays, so it is not searched for garbage. While it is made, a thousand searches took a fifth of the time. In a rank a
search would copy the memory that it shares.
"""

import cmath  # noqa: F401 (a library that sympy would load, and wait for the thread's)
import contextlib
import ctypes
import gc
import importlib.util
import os
import threading
from pathlib import Path
from typing import Any


def _import() -> None:
    import recsys_lab.planning

    loading = threading.Thread(target=_load_torch)
    loading.start()
    with contextlib.suppress(ImportError):  # where torch is missing, it says so itself
        import sympy  # noqa: F401 (FBGEMM's; it loads no other library)

    loading.join()
    import torch
    from lightning_utilities.core import imports as installed

    imports: Any = installed
    available, has_gpu = imports.package_available, torch.cuda.is_available
    imports.package_available = lambda name: name != "matplotlib" and available(name)  # torchmetrics would import it, and nobody plots here
    torch.cuda.is_available = lambda: False  # FBGEMM asks: the driver would open here, and no rank could use what this process opened
    try:
        import torchrec.distributed.model_parallel  # noqa: F401

        import recsys_lab.executor.shard
        import recsys_lab.executor.sharding
        import recsys_lab.models.interaction
        import recsys_lab.train.rank  # noqa: F401
        from recsys_lab.executor.execution import execution_of
        from recsys_lab.plan.scheme import known_schemes

        for scheme in known_schemes().values():
            execution_of(scheme)  # imported by its name
    finally:
        imports.package_available, torch.cuda.is_available = available, has_gpu


def _load_torch() -> None:
    """Loads torch's largest library beside other imports: a fifth of what `import torch` takes. Where that fails, torch itself says why.

    A build for CUDA loads libraries of its own before.
    """
    found = importlib.util.find_spec("torch")
    libraries = Path(found.origin).parent / "lib" if found is not None and found.origin is not None else None
    if libraries is None or (libraries / "libtorch_cuda.so").exists():
        return
    load = ctypes.CDLL(None).dlopen  # lets other threads run, which `ctypes.CDLL` of the library does not
    load.restype = ctypes.c_void_p
    load(os.fsencode(libraries / "libtorch_cpu.so"), os.RTLD_NOW)


_collected = gc.isenabled()
gc.disable()
try:
    _import()
    gc.freeze()
finally:
    if _collected:
        gc.enable()
