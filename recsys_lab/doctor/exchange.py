"""One rank of the doctor's exchange: `python -m recsys_lab.doctor.exchange BACKEND RANK RANKS STORE_FILE`. Ends with 0 if all is right."""

from __future__ import annotations

import os
import sys
from datetime import timedelta


def exchange(backend: str, rank: int, ranks: int, store: str) -> bool:
    """Sums the ranks' numbers, sends to rank r the number 10 * own rank + r, and checks what came."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=30))
    sent = torch.tensor([10 * rank + r for r in range(ranks)], device=device)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    total = torch.tensor([rank], device=device)
    dist.all_reduce(total)
    return total.item() == sum(range(ranks)) and received.tolist() == [10 * r + rank for r in range(ranks)]


if __name__ == "__main__":
    right = exchange(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    if not right:
        print("wrong numbers came", file=sys.stderr, flush=True)
    os._exit(0 if right else 1)  # gloo's threads now and then abort in exit handlers
