"""Parts that models share, against torch's own."""

from __future__ import annotations

import pytest
import torch

from recsys_lab.models.layers import LowRankCross


@pytest.mark.parametrize("format", [torch.float32, torch.bfloat16])
def test_a_cross_layer_has_the_bits_of_torchs_addcmul(format: torch.dtype) -> None:
    torch.manual_seed(5)
    cross = LowRankCross(24, 3, 4, None).to(format)
    mine, theirs = (torch.randn(6, 24).to(format).requires_grad_() for _ in range(2))
    theirs.data.copy_(mine.data)
    given = torch.randn(6, 24).to(format)
    made = cross(mine)
    made.backward(given)
    of_weights = [parameter.grad for parameter in cross.parameters()]
    cross.zero_grad()
    x = theirs
    for down, up in zip(cross.down, cross.up):
        x = torch.addcmul(x, theirs, up(down(x)))
    x.backward(given)
    assert torch.equal(made, x) and torch.equal(mine.grad, theirs.grad)
    assert all(torch.equal(grad, parameter.grad) for grad, parameter in zip(of_weights, cross.parameters(), strict=True))
