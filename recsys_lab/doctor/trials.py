"""Small pieces of real work: a look-up and its update, a collective and an exchange between processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from recsys_lab.doctor.row import BROKEN, OK, WARNING, Row
from recsys_lab.doctor.versions import REBUILD, ROOT
from recsys_lab.units import counted, human_bytes

RANKS = 2
LOOPBACK = "lo"
TIMEOUT_S = 60.0


def lookup_row() -> Row:
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


def gpu_rows() -> list[Row]:
    """What torch finds, and whether the driver finds more."""
    import torch

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return [Row("devices", f"GPU {i}", OK, f"{gpu.name}, {human_bytes(gpu.total_memory)}") for i, gpu in enumerate(gpus)]
    if shutil.which("nvidia-smi") is not None:
        query = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=False)
        if query.returncode == 0 and query.stdout.strip():
            return [Row("devices", "GPU", WARNING, "the driver has one, torch cannot use it", "make env LOCK=cuda")]
    return [Row("devices", "GPU", OK, "none: ranks train on the CPU")]


def gloo_row() -> Row:
    """An all-reduce and an all-to-all between two processes of this machine."""
    return _exchange_row("gloo", RANKS, f"see that the interface {LOOPBACK} is up: ip link")


def nccl_row() -> Row:
    """The same of one process with itself over NCCL, where there is a GPU for it."""
    import torch

    if not torch.cuda.is_available():
        return Row("backends", "nccl", OK, "not needed without a GPU")
    return _exchange_row("nccl", 1, "see NCCL_DEBUG=INFO python -m recsys_lab doctor, or make env LOCK=cuda")


def _exchange_row(backend: str, ranks: int, remedy: str) -> Row:
    work = f"all-reduce and all-to-all of {counted(ranks, 'process')}"
    failure = exchange_between_processes(backend, ranks)
    return Row("backends", backend, OK, work) if failure is None else Row("backends", backend, BROKEN, f"{work}: {failure}", remedy)


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
