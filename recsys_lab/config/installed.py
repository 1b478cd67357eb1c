"""Whether the packages of a config's choices are installed: asked when the config is composed, before anything is planned or written."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.options import TRAINS
from recsys_lab.config.schema import TARGETS, target_of
from recsys_lab.packages import check_training, missing


def check_installed(config: DictConfig) -> None:
    """Raises UserError for the first choice of a checked `config` whose package is missing. A launcher needs its own only to train."""
    trains = config.mode in TRAINS and config.get("study") is None
    if trains:
        check_training()
    for where in TARGETS:
        group = OmegaConf.select(config, where)
        if group is None or (where == "launcher" and not trains):
            continue
        if (package := missing(target_of(group.get("_target_"), where))) is not None:
            raise package.refusal(where, (config.get("choices") or {}).get(where) or group.get("_target_"))
