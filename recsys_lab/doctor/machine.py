"""What this machine has: cores, memory, GPUs, instructions, compilers, disk."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

from recsys_lab.doctor.row import BROKEN, OK, WARNING, Row
from recsys_lab.units import counted, human_bytes

#: Below these, the usual small runs do not go well (what the default run takes, rounded up).
LEAST_MEMORY_BYTES = 4e9
LEAST_DISK_BYTES, ENOUGH_DISK_BYTES = 0.5e9, 5e9
#: Instruction sets by what they are for.
NEEDED_FLAGS = {"avx2": "FBGEMM's CPU kernels"}
USEFUL_FLAGS = {"avx512f": "wider look-ups", "avx512_bf16": "fast BF16 on the CPU"}


def device_rows() -> list[Row]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = psutil.virtual_memory()
    rows = [Row("devices", "CPU", OK, counted(cores, "core"))]
    text = f"{human_bytes(memory.total)}, {human_bytes(memory.available)} free"
    if memory.available < LEAST_MEMORY_BYTES:
        rows.append(
            Row("devices", "memory", WARNING, text, "end other programs, or train smaller: launcher.hosts=1 launcher.ranks_per_host=1")
        )
    else:
        rows.append(Row("devices", "memory", OK, text))
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            rows.append(Row("devices", f"GPU {index}", OK, f"{gpu.name}, {human_bytes(gpu.total_memory)}"))
    elif gpus := _driver_gpus():
        rows.append(Row("devices", "GPU", WARNING, f"the driver has {gpus}, torch cannot use it", "make env LOCK=cuda"))
    else:
        rows.append(Row("devices", "GPU", OK, "none: ranks train on the CPU"))
    return rows


def _driver_gpus() -> str | None:
    """What nvidia-smi lists, or None where there is no driver."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=False
    )
    return query.stdout.strip().replace("\n", ", ") if query.returncode == 0 and query.stdout.strip() else None


def cpu_flags() -> frozenset[str] | None:
    """The instruction sets of the processor, or None where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    lines = (line.partition(":")[2].split() for line in text.splitlines() if line.startswith("flags"))
    return frozenset(next(lines, []))


def cpu_rows(flags: frozenset[str] | None) -> list[Row]:
    if not flags:
        return [
            Row(
                "CPU",
                "instructions",
                WARNING,
                f"unknown on {platform.system()} {platform.machine()}",
                "use Linux on x86-64, which is what is tested",
            )
        ]
    rows = []
    for name, use in NEEDED_FLAGS.items():
        if name in flags:
            rows.append(Row("CPU", name, OK, f"yes: {use}"))
        else:
            rows.append(
                Row("CPU", name, BROKEN, f"no: {use} need it", "use a processor of 2015 or later, or a virtual machine that shows it")
            )
    for name, use in USEFUL_FLAGS.items():
        if name in flags:
            rows.append(Row("CPU", name, OK, f"yes: {use}"))
        else:
            rows.append(Row("CPU", name, WARNING, f"no: {use}", "nothing to mend, only slower here: keep precision=fp32"))
    return rows


def toolchain_row() -> Row:
    compilers = [name for name in ("gcc", "g++") if shutil.which(name)]
    if len(compilers) == 2:
        query = subprocess.run(["g++", "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, timeout=30, check=False)
        return Row("kernels", "compiler", OK, f"g++ {query.stdout.strip()}, for torch.compile and C++ kernels")
    problem = f"only {compilers[0]}" if compilers else "no gcc, no g++"
    return Row(
        "kernels",
        "compiler",
        WARNING,
        problem,
        "torch.compile and C++ kernels need both: install gcc and g++ (Debian, Ubuntu: apt install g++)",
    )


def disk_row(folder: Path) -> Row:
    free = shutil.disk_usage(folder).free
    text = f"{human_bytes(free)} free, {'writable' if os.access(folder, os.W_OK) else 'not writable'}"
    remedy = "write runs elsewhere: hydra.run.dir=DIR"
    if not os.access(folder, os.W_OK) or free < LEAST_DISK_BYTES:
        return Row("disk", "this folder", BROKEN, text, remedy)
    if free < ENOUGH_DISK_BYTES:
        return Row("disk", "this folder", WARNING, text, f"free some space, or {remedy}")
    return Row("disk", "this folder", OK, text)


def wandb_row() -> Row:
    from recsys_lab.doctor.versions import REBUILD, installed
    from recsys_lab.errors import UserError

    version = installed("wandb")
    if version is None:
        return Row("W&B", "client", WARNING, "not installed", f"{REBUILD}, or use logger=csv")
    from recsys_lab.record.wandb_run import logged_in

    try:
        return Row("W&B", "client", OK, f"{version}, {'logged in' if logged_in() else 'not logged in: runs are kept offline'}")
    except UserError as error:
        return Row("W&B", "client", WARNING, f"{version}; {error.parts['what']}", "run `wandb login`, or use logger.mode=offline")
