"""What the server of ranks imports, and what it leaves alone: NVIDIA's driver. What it opened, the ranks that are forked from it could not
use. No GPU is used.
"""

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


LOADS = """
import sys, threading
import launchers.preload
from launchers.preload import _load_torch
_load_torch()
maps = open("/proc/self/maps").read() if sys.platform == "linux" else "libtorch_cpu"
print("libtorch_cpu" in maps, threading.active_count())
"""
MEETS = """
import sys
import launchers.preload
known = set(sys.modules)
import torch
from recsys_lab.experiment import of_words
experiment = of_words(["mode=train", "data.rows_train=64", "data.rows_validation=64"], where="test")
data = experiment.open_data()
experiment.build_model(data, torch.device("meta"))
print([name for name in sorted(set(sys.modules) - known) if name.partition(".")[0] == "numpy" or name.startswith("recsys_lab.executor")])
"""


def test_torchs_library_is_loaded_in_a_thread_that_ends() -> None:
    """A second time too. A server with a second thread could not be forked."""
    done = subprocess.run([sys.executable, "-c", LOADS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True 1"


def test_a_rank_imports_none_of_what_every_rank_needs() -> None:
    """`np.unique` would import `numpy.ma`, in each rank again."""
    done = subprocess.run([sys.executable, "-c", MEETS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_torch_it_is_torch_that_is_missing() -> None:
    """As in an install without extras, which has no sympy either."""
    hidden = "import sys; sys.modules |= {'torch': None, 'sympy': None}; import launchers.preload"
    done = subprocess.run([sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of torch halted")
