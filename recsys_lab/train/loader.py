"""The training loader as Lightning wants it: epoch after epoch, and able to go on in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator

from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader


class ResumableLoader:
    """Batches of `loader`, one epoch an iteration. Its state is the position alone: (epoch, batches taken)."""

    def __init__(self, loader: RankLoader):
        self.loader = loader
        self.epoch = 0
        self.batch = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        if self.batch >= len(self.loader):
            self.epoch, self.batch = self.epoch + 1, 0
        self.loader.set_position(self.epoch, self.batch)
        for batch in self.loader:
            self.batch += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
