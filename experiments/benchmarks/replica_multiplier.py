"""What a replicated row costs a rank in memory, over the bytes of its weights: FlexShard's multiplier, of our executor.

    python experiments/benchmarks/replica_multiplier.py

Two processes train a sequence table of which N rows are replicated, for two N and the same batches. The multiplier is the slope of the
peak resident memory over N. Prints one JSON object. The paper takes 6 from TorchRec (section 6.1).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.executor.shard import shard
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.workload import STATE_PER_ROW, STATE_PER_WEIGHT
from recsys_lab.precision import Precision
from recsys_lab.tables import Table

RANKS, DIM, COLD_ROWS, STEPS, LOOK_UPS = 2, 128, 2, 4, 20_000


class Sum(nn.Module):
    """The simplest model of a sequence."""

    def __init__(self, rows: int):
        super().__init__()
        config = EmbeddingConfig(name="t", num_embeddings=rows, embedding_dim=DIM, feature_names=["f"])
        self.embeddings = EmbeddingCollection([config], device=torch.device("meta"))
        self.scale = nn.Linear(1, 1)

    def forward(self, dense: torch.Tensor | None, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return self.scale(self.embeddings(sparse)["f"].values().sum().view(1))


def rank_peak_bytes(rank: int, replicated: int, optimizer: str, store: str) -> int:
    """The peak resident memory of a process that trains a few steps."""
    os.environ |= {"LOCAL_WORLD_SIZE": str(RANKS), "RANK": str(rank), "WORLD_SIZE": str(RANKS), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    table = Table("t", replicated + COLD_ROWS, DIM, ("f",), "none")
    shards = (
        Shard(tuple(range(RANKS)), 0, replicated, 0, DIM, "replicated"),
        *(Shard((r,), replicated + r, replicated + r + 1, 0, DIM, "row_sharded") for r in range(RANKS)),
    )
    plan = ShardingPlan("by_hand", 1, RANKS, (table,), (Placement("t", "flexshard", shards),))
    hot = {"t": np.arange(replicated)}
    made = shard(Sum(table.rows), plan, torch.device("cpu"), (optimizer, 0.1, 1e-8, 0.0), Precision("fp32"), seed=1, hot_rows=hot)
    for step in range(STEPS):
        ids = torch.linspace(step, table.rows - 1, LOOK_UPS).long()
        made.sparse_optimizer.zero_grad()
        made.module(None, KeyedJaggedTensor(["f"], ids, lengths=torch.tensor([len(ids)], dtype=torch.int32))).sum().backward()
        made.sparse_optimizer.step()
    peak = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    dist.barrier()
    return peak * 1024


def _main(rank: int, replicated: int, optimizer: str, store: str, answers: mp.Queue) -> None:
    answers.put(rank_peak_bytes(rank, replicated, optimizer, store))
    answers.close()
    answers.join_thread()
    os._exit(0)


def peak_bytes(replicated: int, optimizer: str) -> float:
    """The mean over the ranks."""
    context = mp.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_main, args=(r, replicated, optimizer, f"{folder}/store", answers)) for r in range(RANKS)]
        for one in ranks:
            one.start()
        peaks = [answers.get(timeout=300) for _ in ranks]
        for one in ranks:
            one.join()
    return float(np.mean(peaks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs=2, default=(400_000, 1_200_000), help="replicated rows of the two points")
    given = parser.parse_args()
    found = {}
    for optimizer in STATE_PER_WEIGHT:
        few, many = (peak_bytes(rows, optimizer) for rows in given.rows)
        slope = (many - few) / ((given.rows[1] - given.rows[0]) * DIM * 4)
        expected = 2 + STATE_PER_WEIGHT[optimizer] + STATE_PER_ROW[optimizer] / DIM
        found[optimizer] = {"multiplier": round(slope, 2), "weights, gradient and state": round(expected, 2)}
    print(json.dumps({"rows": list(given.rows), "dim": DIM, "ranks": RANKS, "paper": 6.0} | found))


if __name__ == "__main__":
    main()
