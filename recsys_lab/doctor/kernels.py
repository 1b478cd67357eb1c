"""Our own kernels: whether they are compiled here, and what it costs where they are not."""

from __future__ import annotations

from recsys_lab.doctor.row import OK, WARNING, Row

NAME = "embeddings in C++"


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
    found, expected = torch.ones(4, 20), torch.ones(4, 20)
    lookups, grad, rule = kernels.Lookups(torch.tensor([1, 3, 1])), torch.arange(60.0).view(3, 20), kernels.Rule("sgd", 0.1)
    kernels.update(found, lookups, grad, rule)
    torch_embedding.update(expected, None, None, lookups, grad, rule)
    if torch.equal(found, expected):
        return Row("kernels", NAME, OK, f"compiled for {native.instructions()}; an update is exact")
    return Row(
        "kernels", NAME, WARNING, "an update is wrong", "RECSYS_LAB_KERNELS=torch keeps to PyTorch; report it with the output of --json"
    )
