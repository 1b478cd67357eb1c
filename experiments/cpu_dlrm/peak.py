"""The processor's peak, measured by instructions that touch no memory (peak.cpp), compiled when it is wanted."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recsys_lab.errors import UserError
from recsys_lab.kernels.build import CannotBuild, compiler

SOURCE = Path(__file__).with_name("peak.cpp")
FLAGS = ("-std=c++20", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast", "-fopenmp", "-shared", "-fPIC")
ROUNDS = {"fp32": 3_000_000, "bf16": 3_000_000}  # some tens of milliseconds


@dataclass(frozen=True)
class Peak:
    """`gflop_s("fp32")` measures it, 0 where the processor has no instruction for the format."""

    library: ctypes.CDLL
    threads: int

    def gflop_s(self, format: str) -> float:
        measure = getattr(self.library, f"{format}_gflop_s")
        measure.restype = ctypes.c_double
        return float(measure(ctypes.c_int(self.threads), ctypes.c_long(ROUNDS[format]), ctypes.byref(ctypes.c_float())))


def compiled(threads: int) -> Peak:
    """Raises UserError where there is no compiler."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "peak.so"
        try:
            subprocess.run([compiler(), *FLAGS, "-w", str(SOURCE), "-o", str(made)], check=True, capture_output=True)
        except (CannotBuild, subprocess.CalledProcessError, OSError) as error:
            raise UserError("the processor's peak cannot be measured", where=SOURCE.name, given=str(error), remedy="install g++") from None
        return Peak(ctypes.CDLL(str(made)), threads)
