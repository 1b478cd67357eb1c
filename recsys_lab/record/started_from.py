"""With which trained weights a run began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Tensors that a sentence names.
MOST_NAMED = 8


@dataclass(frozen=True)
class StartedFrom:
    """The checkpoint whose weights a run began with.

    Attributes:
        folder: of the checkpoint.
        taken: how many tensors of the model came from it.
        partly: by tensor, which of its rows are new.
        not_taken: by tensor of the model, why it is not from there.
        unused: tensors of the checkpoint that the model does not have.
    """

    folder: str
    taken: int
    partly: Mapping[str, str]
    not_taken: Mapping[str, str]
    unused: Sequence[str]

    @property
    def differing(self) -> list[str]:
        """What model and checkpoint do not have alike, a tensor each."""
        of_model = [f"{key}: {why}" for key, why in {**self.partly, **self.not_taken}.items()]
        return of_model + [f"{key}: not in this model" for key in self.unused]

    def sentence(self, most: int = MOST_NAMED) -> str:
        """What was taken and what was not. It names `most` tensors."""
        return "; ".join([f"{self.taken} tensors of {self.folder}", *shortened(self.differing, most)])


def shortened(names: Sequence[str], most: int = MOST_NAMED) -> list[str]:
    """The first `most`, and how many more there are."""
    return [*names[:most], *([f"and {len(names) - most} more"] if len(names) > most else [])]
