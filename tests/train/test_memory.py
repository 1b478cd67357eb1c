"""What a step frees is there for the next one."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from recsys_lab.train.memory import keep_memory

def new_pages():
    def count():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(1 << 24)  # 64 MB
    before = count()
    for _ in range(5):
        torch.ones(1 << 24)
    return count() - before

torch.ones(1 << 24)
before = new_pages()
keep_memory()
print(before, new_pages())
"""


def test_freed_memory_needs_no_new_pages() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < 100
    assert before > 1000  # else this shows nothing


ADDED = """
import sys, torch
from recsys_lab.train.memory import keep_memory, peak_bytes, watch

if sys.argv[1] == "kept":
    keep_memory()
device = torch.device("cpu")
torch.ones(20_000_000).sum()  # 80 MB
before = watch(device)
torch.ones(10_000_000).sum()
print(-1 if before is None else peak_bytes(device) - before)
"""


@pytest.mark.parametrize("freed", ["kept", "given back"])
def test_what_a_process_adds_is_counted_from_the_watch_on(freed: str) -> None:
    """80 MB come and go before it, 40 MB after: only these count, though they are freed again, and though those were kept."""
    done = subprocess.run([sys.executable, "-c", ADDED, freed], capture_output=True, text=True, check=True)
    added = int(done.stdout)
    if added < 0:
        pytest.skip("this system does not tell")
    assert 0.8 * 40e6 < added < 1.5 * 40e6
