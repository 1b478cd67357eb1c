"""The server of ranks leaves NVIDIA's driver alone: what it opened, the ranks that are forked from it could not use. No GPU is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launchers import processes

ROOT = Path(__file__).resolve().parents[2]
#: FBGEMM's build for CUDA asks; the one for CPUs is caught at the beginning of its import.
ASKS = """
import sys
import torch
asked, told = [], []
ours = torch.cuda.is_available = torch.cuda.device_count = lambda: asked.append(1) or 0
class Watch:
    def find_spec(name, path, target=None):
        if name == "fbgemm_gpu":
            told.append(torch.cuda.is_available is not ours and not torch.cuda.is_available())
sys.meta_path.insert(0, Watch)
import {modules}
assert torch.cuda.is_available is ours, "it is what it was again"
print(len(asked), told)
"""


@pytest.mark.parametrize("modules", ["launchers.preload, recsys_lab.train.rank", "recsys_lab.calibrate.calibration"])
def test_importing_the_libraries_asks_for_no_gpu(modules: str) -> None:
    """The server is forked from calibrate's own process, too, which has imported all of them by then."""
    done = subprocess.run([sys.executable, "-c", ASKS.format(modules=modules)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 [True]"


def test_the_server_ends_the_driver_that_its_parent_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML counts how often it was begun, and says when that is none."""

    class Nvml:
        begun = 3

        def nvmlShutdown(self) -> int:
            self.begun -= 1
            return 0 if self.begun >= 0 else 1

    nvml = Nvml()
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: nvml)
    processes._close_driver()
    assert nvml.begun == -1


def test_a_machine_without_the_driver_has_nothing_to_end() -> None:
    processes._close_driver()
