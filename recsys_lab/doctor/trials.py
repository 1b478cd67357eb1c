"""Small pieces of real work: a look-up and its update, and exchanges between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from recsys_lab.doctor.row import BROKEN, OK, WARNING, Row
from recsys_lab.doctor.versions import REBUILD, ROOT

RANKS = 2
LOOPBACK = "lo"
TIMEOUT_S = 60.0


def fbgemm_row() -> Row:
    """Looks rows up with FBGEMM on the CPU and has it update them, against embedding_bag and plain SGD."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    start = torch.arange(40.0).view(10, 4)
    ids, offsets = torch.tensor([1, 2, 9]), torch.tensor([0, 2, 3])
    table = SplitTableBatchedEmbeddingBagsCodegen(
        [(10, 4, EmbeddingLocation.HOST, ComputeDevice.CPU)], optimizer=EmbOptimType.EXACT_SGD, learning_rate=0.5
    )
    weight = table.split_embedding_weights()[0]
    weight.data.copy_(start)
    pooled = table(ids, offsets)
    pooled.sum().backward()
    expected = start.clone()
    expected[ids] -= 0.5
    if torch.equal(pooled, torch.nn.functional.embedding_bag(ids, start, offsets[:-1], mode="sum")) and torch.equal(weight, expected):
        return Row("kernels", "FBGEMM on the CPU", OK, "a look-up and its SGD update are exact")
    return Row("kernels", "FBGEMM on the CPU", BROKEN, "a look-up or its update is wrong", f"is the triple matched, above? {REBUILD}")


def embedding_bag_row() -> Row:
    """torch's own pooled look-up against a sum by hand."""
    import torch

    weight = torch.arange(40.0).view(10, 4)
    pooled = torch.nn.functional.embedding_bag(torch.tensor([1, 2, 9]), weight, torch.tensor([0, 2]), mode="sum")
    if torch.equal(pooled, torch.stack([weight[1] + weight[2], weight[9]])):
        return Row("kernels", "torch embedding_bag", OK, "a look-up is exact")
    return Row("kernels", "torch embedding_bag", BROKEN, "a look-up is wrong", REBUILD)


def gloo_row() -> Row:
    """An all-to-all between two processes of this machine."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return Row("backends", "gloo", BROKEN, "not in this build of torch", REBUILD)
    failure = exchange_between_processes("gloo", RANKS)
    if failure is None:
        return Row("backends", "gloo", OK, f"all-to-all between {RANKS} processes")
    return Row(
        "backends",
        "gloo",
        BROKEN,
        f"all-to-all between {RANKS} processes: {failure}",
        f"see that the interface {LOOPBACK} is up: ip link",
    )


def nccl_row() -> Row:
    """An all-to-all of one process with itself over NCCL, where there is a GPU for it."""
    import torch
    import torch.distributed as dist

    has_nccl = dist.is_available() and dist.is_nccl_available()
    if not torch.cuda.is_available():
        return Row("backends", "nccl", OK, f"{'in this build' if has_nccl else 'not in this build of torch'}; not needed without a GPU")
    if not has_nccl:
        return Row("backends", "nccl", WARNING, "not in this build of torch", "make env LOCK=cuda")
    failure = exchange_between_processes("nccl", 1)
    if failure is None:
        return Row("backends", "nccl", OK, "all-to-all of one process")
    return Row("backends", "nccl", BROKEN, f"all-to-all of one process: {failure}", "see NCCL_DEBUG=INFO python -m recsys_lab doctor")


def exchange_between_processes(backend: str, ranks: int, timeout_s: float = TIMEOUT_S) -> str | None:
    """What went wrong, in a line, or None. Every process is gone when this returns."""
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"}
    environment |= {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK}  # nothing listens to other machines
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"rank{rank}.log" for rank in range(ranks)]
        processes = []
        for rank, log in enumerate(logs):
            command = [sys.executable, "-m", "recsys_lab.doctor.exchange", backend, str(rank), str(ranks), f"{folder}/store"]
            with log.open("w") as stderr:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, env=environment)
            processes.append(process)
        try:
            codes = [process.wait(timeout=timeout_s) for process in processes]
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout_s:g} s"
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for rank, code in enumerate(codes):
            if code != 0:
                output = logs[rank].read_text(encoding="utf-8", errors="replace").strip().splitlines()
                return f"rank {rank}: {output[-1] if output else f'ended with {code}'}"
    return None
