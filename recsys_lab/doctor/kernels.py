"""Our own kernels: which are in use here, and what it costs where they are not."""

from __future__ import annotations

from recsys_lab.doctor.row import OK, WARNING, Row

NAME = "embeddings in C++"
TRITON = "embeddings in Triton"


def kernels_row() -> Row:
    """Compiles them where that has not been done before, and holds one update against the torch definition."""
    import torch

    from recsys_lab import kernels
    from recsys_lab.kernels import native, torch_embedding
    from recsys_lab.kernels.choice import LOST

    if not kernels.available():
        return Row(
            "kernels",
            NAME,
            WARNING,
            f"{kernels.why_not()}; {LOST}",
            "install g++ (Debian, Ubuntu: apt install g++), unset RECSYS_LAB_KERNELS",
        )
    weights, expected = torch.ones(4, 20), torch.ones(4, 20)
    lookups, grad, rule = kernels.Lookups(torch.tensor([1, 3, 1])), torch.arange(60.0).view(3, 20), kernels.Rule("sgd", 0.1)
    kernels.update(weights, lookups, grad, rule)
    torch_embedding.update(expected, None, None, lookups, grad, rule)
    if torch.equal(weights, expected):
        return Row("kernels", NAME, OK, f"compiled for {native.instructions()}; an update is exact")
    return Row(
        "kernels", NAME, WARNING, "an update is wrong", "RECSYS_LAB_KERNELS=torch keeps to PyTorch; report it with the output of --json"
    )


def triton_row() -> Row:
    """Where there is a GPU, compares one update of hi/lo split weights there with the torch definition on the CPU."""
    import torch

    from recsys_lab import kernels
    from recsys_lab.kernels import torch_embedding
    from recsys_lab.kernels.choice import LOST_ON_A_GPU, why_no_triton

    if not torch.cuda.is_available():
        return Row("kernels", TRITON, OK, "not needed without a GPU: tables are the CPU's")
    if why_no_triton():
        remedy = "make env LOCK=cuda, unset RECSYS_LAB_KERNELS"
        return Row("kernels", TRITON, WARNING, f"{why_no_triton()}; {LOST_ON_A_GPU}", remedy)
    ids, grad, rule = torch.tensor([1, 3, 1]), torch.arange(60.0).view(3, 20), kernels.Rule("sgd", 0.1)
    joined = []
    for device in ("cpu", "cuda"):
        high, low = (half.to(device) for half in kernels.split(torch.ones(4, 20)))
        if device == "cpu":
            torch_embedding.update(high, low, None, kernels.Lookups(ids), grad, rule)
        else:
            kernels.update(high, kernels.Lookups(ids.to(device)), grad.to(device), rule, low=low)
        joined.append(kernels.join(high, low).cpu())
    if torch.equal(*joined):
        return Row("kernels", TRITON, OK, "an update of hi/lo split weights on the GPU is exact")
    remedy = "RECSYS_LAB_KERNELS=torch keeps to PyTorch; report it with the output of --json"
    return Row("kernels", TRITON, WARNING, "an update on the GPU is wrong", remedy)
