"""What is installed, against what belongs together."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

from recsys_lab.base import paths
from recsys_lab.doctor.row import BROKEN, OK, Row
from recsys_lab.errors import fbgemm_again

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ((3, 11), (3, 12))
#: The matched triple. FBGEMM has a build for each kind of machine; exactly one may be there.
TORCH, TORCHREC, FBGEMM = "2.13", "1.8", "1.8"
FBGEMM_BUILDS = ("fbgemm-gpu-cpu", "fbgemm-gpu")
REBUILD = "rm -r .venv && make env" if (paths.ROOT / "Makefile").is_file() else "pip install 'recsys_lab[cpu]' in a new environment"


def installed(package: str) -> str | None:
    """Its version, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def has_its_files(package: str) -> bool:
    """Whether the libraries that it installed are as it installed them: another package may have written over them."""
    libraries = [file for file in files(package) or () if file.suffix == ".so"]
    return bool(libraries) and all(Path(str(file.locate())).stat().st_size == file.size for file in libraries)


def python_row(python: tuple[int, ...] = tuple(sys.version_info[:3])) -> Row:
    text = ".".join(map(str, python))
    if python[:2] in PYTHONS:
        return Row("versions", "Python", OK, text)
    return Row(
        "versions", "Python", BROKEN, text, f"Python 3.11 or 3.12 is needed, and the lock is for 3.11: {REBUILD}, then use .venv/bin/python"
    )


def triple_rows() -> list[Row]:
    """torch, torchrec and fbgemm, and whether the three are made for each other."""
    builds = [name for name in FBGEMM_BUILDS if installed(name)]
    cuda, gpu = (_torch_cuda(), _has_gpu()) if installed("torch") else (None, False)
    fbgemm = builds[0] if len(builds) == 1 else FBGEMM_BUILDS[gpu]
    wanted = {"torch": TORCH, "torchrec": TORCHREC, fbgemm: FBGEMM}
    rows = [_release_row(name, release) for name, release in wanted.items()]
    if any(row.state != OK for row in rows):
        remedy = f"{REBUILD}: torch {TORCH}, torchrec {TORCHREC}, fbgemm {FBGEMM}"
        return [*rows, Row("versions", "the triple", BROKEN, "does not match", remedy)]
    if len(builds) > 1 and not has_its_files(fbgemm):
        return [*rows, Row("versions", "the triple", BROKEN, "both builds of fbgemm, one over the other", fbgemm_again(fbgemm))]
    if cuda is None and fbgemm == "fbgemm-gpu":
        return [*rows, Row("versions", "the triple", BROKEN, "torch for CPU with fbgemm for CUDA", "make env LOCK=cpu, or LOCK=cuda")]
    if gpu and fbgemm == "fbgemm-gpu-cpu":
        wrong = f"torch for CUDA {cuda} with fbgemm for CPU"
        return [*rows, Row("versions", "the triple", BROKEN, wrong, "make env LOCK=cuda, or LOCK=cpu")]
    made_for = "CPU" if fbgemm == "fbgemm-gpu-cpu" else f"CUDA {cuda}"
    return [*rows, Row("versions", "the triple", OK, f"matches, for {made_for}")]


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _torch_cuda() -> str | None:
    """The CUDA version that torch was built for, or None."""
    import torch

    return torch.version.cuda


def _release_row(name: str, release: str) -> Row:
    present = installed(name)
    if present is None:
        return Row("versions", name, BROKEN, "not installed", REBUILD)
    if present != release and not present.startswith(f"{release}."):
        return Row("versions", name, BROKEN, f"{present}, not {release}", f"{REBUILD}; the lock has {release}")
    return Row("versions", name, OK, present)
