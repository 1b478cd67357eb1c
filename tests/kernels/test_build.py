"""How the kernels come to be: compiled once for all processes, and where they cannot be, torch takes over and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.kernels import available, build, why_not

ROOT = Path(__file__).resolve().parents[2]
USE = (
    "import torch, recsys_lab.kernels as k; w = torch.ones(3, 4);"
    "k.update(w, k.Lookups(torch.tensor([1, 1])), torch.ones(2, 4), k.Rule('sgd', 0.25)); k.rows(w, torch.tensor([1]));"
    "print(k.available(), w[1, 0].item(), k.why_not())"
)


def run(code: str = USE, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=whole, capture_output=True, text=True, timeout=200)


def test_torch_takes_over_on_request_and_says_what_is_lost_once() -> None:
    done = run(RECSYS_LAB_KERNELS="torch")
    assert done.stdout == "False 0.5 RECSYS_LAB_KERNELS=torch\n"
    assert done.stderr.splitlines() == [line for line in done.stderr.splitlines() if "several times slower" in line]
    assert len(done.stderr.splitlines()) == 1
    assert run(RECSYS_LAB_KERNELS="torch", RANK="1").stderr == ""


def test_on_a_gpu_torch_takes_over_from_triton_alike() -> None:
    code = (
        "from types import SimpleNamespace as T; from recsys_lab.kernels.choice import triton_for;"
        "print(triton_for(T(is_cuda=False)), triton_for(T(is_cuda=True)), triton_for(T(is_cuda=True)))"
    )
    done = run(code, RECSYS_LAB_KERNELS="torch")
    assert done.stdout == "False False False\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernels: RECSYS_LAB_KERNELS=torch; embedding look-ups and updates run in plain PyTorch on the GPU")


def test_without_a_compiler_torch_takes_over(tmp_path: Path) -> None:
    done = run(CXX="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == "False 0.5 no C++ compiler (no-such-compiler not found)\n"
    assert "several times slower" in done.stderr


def test_a_compiler_that_fails_is_quoted_and_leaves_no_library(tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'error: not today' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = run(CXX=str(broken), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "False 0.5" in done.stdout
    assert "error: not today" in done.stdout
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_cache_that_cannot_be_written_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "XDG_CACHE_HOME names another folder" in run(XDG_CACHE_HOME=str(tmp_path / "file")).stdout


#: A compiler that takes a moment, and copies what this machine's own has made.
COPIES = """#!/bin/sh
[ "$1" = --version ] && exec echo copies
while [ "$1" != -o ]; do shift; done
sleep 0.2
cp {library} "$2"
"""


@pytest.mark.skipif(not available(), reason=f"no C++ kernels: {why_not()}")
def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    """Three processes, an empty cache: one compiles, the others wait; nothing but the library and the lock is left."""
    compiler = tmp_path / "c++"
    compiler.write_text(COPIES.format(library=build.built()))
    compiler.chmod(0o755)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path), "CXX": str(compiler)}
    started = [
        subprocess.Popen([sys.executable, "-c", USE], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=250) for process in started]
    assert [out.split() for out, _ in ended] == [["True", "0.5"]] * 3
    assert sum("compiling" in err for _, err in ended) == 1
    (folder,) = (path for path in (tmp_path / "recsys_lab" / "kernels").iterdir() if path.is_dir())  # beside it: what was measured
    assert sorted(path.name for path in folder.iterdir()) == ["kernels.so", "lock"]


@pytest.mark.skipif(not available(), reason=f"no C++ kernels: {why_not()}")
def test_threads_are_torchs_own() -> None:
    """One OpenMP runtime in the process, and as many threads of it as torch uses: no second pool competes for the cores."""
    code = """
import os, torch, recsys_lab.kernels as k
from recsys_lab.kernels import native
torch.set_num_threads(3)
(torch.randn(1000, 1000) @ torch.randn(1000, 1000)).sum()
torch.ones(1 << 20).exp()
before = len(os.listdir('/proc/self/task'))
ids = torch.randint(0, 1000, (20000,))
k.update(torch.ones(1000, 16), k.Lookups(ids), torch.ones(20000, 16), k.Rule('sgd', 0.1))
after = len(os.listdir('/proc/self/task'))
used = {line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line}
print(after - before, native.threads_of_a_region(3), len(used))
"""
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs Linux")
    assert run(code).stdout.split() == ["0", "3", "1"]
