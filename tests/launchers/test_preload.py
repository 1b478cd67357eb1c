"""The server of ranks leaves NVIDIA's driver alone: what it opened, the ranks that are forked from it could not use. No GPU is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launchers import processes

ROOT = Path(__file__).resolve().parents[2]
ASKS = """
import torch
asked = []
ours = torch.cuda.is_available = torch.cuda.device_count = lambda: asked.append(1) or 0
import {modules}
assert torch.cuda.is_available is ours, "it is what it was again"
print(len(asked), "fbgemm_gpu" in __import__("sys").modules)
"""


@pytest.mark.parametrize("modules", ["launchers.preload, recsys_lab.train.rank", "recsys_lab.calibrate.calibration"])
def test_importing_the_libraries_asks_for_no_gpu(modules: str) -> None:
    """The server is forked from calibrate's own process, too, which has imported all of them by then."""
    done = subprocess.run([sys.executable, "-c", ASKS.format(modules=modules)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


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
