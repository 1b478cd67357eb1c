"""Words of run.py that a command without a run of the user's cannot honour. It refuses them: ignored, they would mislead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_lab.config.hydra_keys import SUBDIR
from recsys_lab.errors import UserError

#: Of a run's folder, and of what lies there.
OF_A_FOLDER = ("hydra.run.dir", "hydra.sweep.dir", SUBDIR, "overwrite", "resume")


def check_no_run_folder(words: Sequence[str], where: str, mode: str | None, instead: str, decided: Mapping[str, str] | None = None) -> None:
    """Checks words before anything is composed of them.

    Args:
        words: as on the command line.
        where: the command.
        mode: the only one that it has; None where a mode changes nothing.
        instead: what to do in place of naming a run's folder.
        decided: by key, why the command chooses its value itself.

    Raises:
        UserError: for the first word that would have no effect.
    """
    for word in words:
        key, _, value = word.lstrip("+~").partition("=")
        if key == "mode" and mode is not None and value != mode:
            raise UserError("it has one mode", where=f"{where} mode", given=word, allowed=f"mode={mode}")
        if key in OF_A_FOLDER:
            raise UserError("it writes no run folder", where=f"{where} {key}", given=word, remedy=instead)
        if decided is not None and key in decided:
            raise UserError("it chooses this itself", where=f"{where} {key}", given=word, remedy=decided[key])
