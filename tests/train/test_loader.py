"""The training loader looks one batch ahead without its state or its batches changing."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from recsys_lab.train.loader import ResumableLoader

BATCHES = 5


class Source:
    """Batches that say which they are: (epoch, number)."""

    def set_position(self, epoch: int, batch: int) -> None:
        self.position = epoch, batch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self):
        epoch, first = self.position
        return (Numbered(epoch, number) for number in range(first, BATCHES))


class Numbered(tuple):
    def __new__(cls, *numbers: int):
        return super().__new__(cls, numbers)

    def to(self, device: torch.device, non_blocking: bool) -> Numbered:
        return self


@pytest.mark.parametrize("taken", range(2 * BATCHES))
def test_looking_ahead_gives_the_same_batches_from_any_position(taken: int) -> None:
    plain, ahead = (ResumableLoader(Source(), device) for device in (None, torch.device("cpu")))  # type: ignore[arg-type]
    for loader in (plain, ahead):
        for _ in range(taken // BATCHES):
            list(loader)
        list(islice(loader, taken % BATCHES))
    assert ahead.state_dict() == plain.state_dict()
    resumed = ResumableLoader(Source(), torch.device("cpu"))  # type: ignore[arg-type]
    resumed.load_state_dict(ahead.state_dict())
    expected = list(plain)
    seen = [(batch, resumed.upcoming) for batch in resumed]
    assert [batch for batch, _ in seen] == expected
    assert [upcoming for _, upcoming in seen] == [*expected[1:], None]
