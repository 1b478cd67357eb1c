"""`hydra/sweeper=optuna`: recsys_lab.sweeps.search as a sweeper. Hydra finds sweepers in packages of this name alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from recsys_lab.config.search_space import read_space
from recsys_lab.errors import UserError
from recsys_lab.report import say
from recsys_lab.sweeps.search import SearchOptions, best, search


class Search(Sweeper):
    """Keys: those of SearchOptions. Trials run one after the other, each seed through Hydra's launcher."""

    def __init__(self, **options: Any):
        self.options = options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(hydra_context=hydra_context, task_function=task_function, config=config)
        self.jobs = 0

    def sweep(self, arguments: list[str]) -> None:
        folder = Path(self.config.hydra.sweep.dir)
        try:
            options, space = SearchOptions(**self.options), read_space(arguments)
            folder.mkdir(parents=True, exist_ok=True)
            found = best(search(space, options, folder, self._run), options)
        except UserError as error:  # Hydra would show it with our traceback
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        if found is not None:
            say.best(options.metric, found.value, [*space.fixed, *found.overrides])

    def _run(self, overrides: Sequence[str]) -> Path | None:
        done = self.launcher.launch([list(overrides)], initial_job_idx=self.jobs)
        self.jobs += 1
        done[0].return_value  # noqa: B018  raises what the job raised
        return None if done[0].hydra_cfg is None else Path(done[0].hydra_cfg.hydra.runtime.output_dir)
