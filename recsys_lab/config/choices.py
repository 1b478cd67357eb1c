"""One choice of a group of `conf/`, put together and built, without the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from recsys_lab.base.paths import CONF
from recsys_lab.config import sized
from recsys_lab.config.frozen import register_resolvers
from recsys_lab.config.schema import build


def composed(group: str, choice: str) -> DictConfig:
    """`conf/GROUP/CHOICE.yaml` with its defaults list. Hydra's own error where there is none."""
    register_resolvers()
    if group == sized.GROUP:
        sized.store(choice)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(f"{group}/{choice}")[group]


def built(group: str, choice: str) -> Any:
    """What the choice's `_target_` makes of it, such as `built("cluster", "h100x64")`: a Cluster."""
    return build(composed(group, choice))


def cluster_here(hosts: int, ranks_per_host: int) -> Any:
    """`conf/cluster/local.yaml` of so many hosts and ranks: a Cluster.

    Its figures are those of the YAML, not calibrated ones. The record of a run for another cluster does not hold calibrated figures. So the
    plan here must not depend on them.
    """
    register_resolvers()
    launcher = {"hosts": hosts, "ranks_per_host": ranks_per_host}
    local = OmegaConf.create({"launcher": launcher, "calibrated": False, "cluster": OmegaConf.load(CONF / "cluster" / "local.yaml")})
    OmegaConf.resolve(local)
    return build(OmegaConf.masked_copy(local.cluster, [key for key in local.cluster if key != "defaults"]))


@contextmanager
def apart_from_hydra() -> Iterator[None]:
    """Within a job that Hydra started, configs can be composed inside as if there were none."""
    of_process, of_job = GlobalHydra.instance(), HydraConfig.instance()
    hydra, config = of_process.hydra, of_job.cfg
    of_process.hydra = None
    try:
        yield
    finally:
        of_process.hydra, of_job.cfg = hydra, config
