"""Where the package finds what lies beside it in a checkout: conf/, launchers/, experiments/, hydra_plugins/, requirements/ and run.py.

An installed wheel carries them in recsys_lab/checkout. A name as common as `launchers` would clash with other packages.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = PACKAGE / "checkout"
ROOT = _INSTALLED if _INSTALLED.is_dir() else PACKAGE.parent
CONF = ROOT / "conf"
#: In a sweep's folder: which jobs it has.
SWEEP_FILE = "sweep.json"


def sweep_of(folder: Path) -> Path | None:
    """The folder of the sweep that the run in `folder` is a job of; None of a run of its own."""
    above = folder.resolve().parent
    return above if (above / SWEEP_FILE).is_file() else None


def user_cache() -> Path:
    """The user's own folder for what can be made again. On Linux XDG_CACHE_HOME/recsys_lab or ~/.cache/recsys_lab."""
    import platformdirs  # which neither help nor a refused line needs

    return platformdirs.user_cache_path("recsys_lab")


def user_config() -> Path:
    """The user's own folder for settings. On Linux XDG_CONFIG_HOME/recsys_lab or ~/.config/recsys_lab."""
    import platformdirs

    return platformdirs.user_config_path("recsys_lab")


def on_path() -> None:
    """Lets `launchers`, `experiments` and `run` be imported before any others, in this process and in those that it starts."""
    if _AFTER_OTHERS:
        sys.path.remove(_AFTER_OTHERS.pop())
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


#: What `importable` has added to the path.
_AFTER_OTHERS: list[str] = []


def importable() -> None:
    """The same for a program of the user's own, whose modules of these names come first."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
        _AFTER_OTHERS.append(str(ROOT))
