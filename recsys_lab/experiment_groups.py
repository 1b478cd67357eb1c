"""What four groups of a config become: a data set to open, a sharder, a launcher, and a study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from omegaconf import DictConfig

from recsys_lab.base.files import path_of
from recsys_lab.config.options import DataCommon, ExecutorOptions, SharderCommon, StudyCommon
from recsys_lab.config.schema import resolved, typed_keys
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import Feature
from recsys_lab.data.random_ids import open_random
from recsys_lab.models.choice import ModelChoice, Towers
from recsys_lab.sharders.base import Sharder
from recsys_lab.sharders.stores import Stores

if TYPE_CHECKING:
    from recsys_lab.sharders.dmt import TowerOptions

SHUFFLED = "shuffled"  # of `data.order`


@dataclass(frozen=True)
class DataChoice:
    """A data set to open, and how it is read: `batch_size` samples a step over all ranks that train here. `histories`: features that random
    data draw for a model of histories.
    """

    open: Callable[[tuple[Feature, ...] | None], OpenDataSet]
    batch_size: int
    prefetch_batches: int
    frequencies: str | None
    order: str = SHUFFLED
    balance: str = "none"
    histories: tuple[Feature, ...] | None = None

    @staticmethod
    def of(group: DictConfig, model: ModelChoice) -> DataChoice:
        """Where `model` fixes its dense features, data that are generated have as many."""
        opener, dense_features, histories = resolved(group, beside=DataCommon), model.dense_features, None
        if opener.func is open_random and model.objective is not None and model.rows is None:
            dense_features, histories = 0, model.histories(opener.keywords["rows_per_table"][0])
        if "dense_features" in opener.keywords and dense_features is not None:
            opener = partial(opener, dense_features=dense_features)
        return DataChoice(opener, **{f.name: group.get(f.name, f.default) for f in fields(DataCommon)}, histories=histories)


@dataclass(frozen=True)
class SharderChoice:
    """Who plans and who executes. `towers`: which features make which tower. `tower_modules`: each group has a module of the model.
    `stores`: where rows go that do not fit; `scratch`: the folder of files with them; empty: the run's own. `dedup`: whether equal ids of
    a rank's batch travel once; auto: a plan decides (planning.py).
    """

    planner: Sharder
    execute: partial
    towers: TowerOptions | None = None
    tower_modules: bool = False
    stores: Stores = Stores()
    scratch: str = ""
    dedup: Literal[True, False, "auto"] = False

    @staticmethod
    def of(group: DictConfig) -> SharderChoice:
        execute = resolved(group.executor)
        keys = typed_keys(group, SharderCommon)
        return SharderChoice(
            planner=resolved(group.planner),
            execute=execute,
            towers=resolved(group.towers) if group.get("towers") is not None else None,
            tower_modules=keys.tower_modules,
            stores=Stores(
                keys.memory_budget_gb,
                keys.store,
                keys.cache_policy,
                _executor_options(execute).in_flight,
                keys.cached_share,
                keys.host_share,
            ),
            scratch="" if keys.scratch is None else str(path_of(keys.scratch, "sharder.scratch")),
            dedup=keys.dedup,
        )

    def with_dedup(self, dedup: bool) -> SharderChoice:
        """Itself, decided."""
        return replace(self, dedup=dedup)

    @property
    def executor(self) -> ExecutorOptions:
        """What others must know of the executor's options."""
        return _executor_options(self.execute)

    def modules(self, towers: Towers) -> Towers:
        """The towers that have a module of the model. None where towers only say what travels how (dmt_sptt)."""
        return towers if self.tower_modules else ()


def _executor_options(execute: partial) -> ExecutorOptions:
    known = {f.name for f in fields(ExecutorOptions)}
    return ExecutorOptions(**{key: value for key, value in execute.keywords.items() if key in known})


@dataclass(frozen=True)
class LauncherChoice:
    """How processes start, on `hosts` x `ranks_per_host` ranks."""

    launch: Callable[..., Any]  # launch(work, arguments, folder) -> what rank 0 returned (launchers/local.py)
    hosts: int
    ranks_per_host: int
    threads_per_rank: int  # of compute

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    def prepare(self, libraries: Sequence[str]) -> None:
        """Starts what the launcher's module can start before the plan is made (launchers/local.py: prepare)."""
        getattr(sys.modules[self.launch.func.__module__], "prepare", lambda _: None)(libraries)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class StudyChoice:
    """A paper's table or figure: `make(name)` gives its Study. `options`: the keys of its function."""

    name: str
    make: Callable[[str], Any]
    common: StudyCommon
    options: Mapping[str, Any]
