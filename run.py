"""python run.py model=dcn sharder=torchrec cluster=h100x64     (--help lists the groups, their choices and examples)"""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from launchers import slurm, torchrun
from recsys_lab.config import command_line
from recsys_lab.errors import UserError, cannot_write
from recsys_lab.job import INTERRUPTED, Before, run_job
from recsys_lab.studies.catalogue import refuse_without_study
from recsys_lab.sweeps.job import in_sweep, show


def main(argv: list[str]) -> int:
    """The exit code of what `argv` asks for: 0 done, 2 a mistake to mend, 3 does not fit, 4 a rank was lost, 1 a bug of ours."""
    try:
        argv = torchrun.going_on(torchrun.with_launcher(argv))
        refuse_without_study(argv)
        asked = command_line.read(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    torchrun.remember(asked.folder)
    if not asked.multirun and asked.config is not None and (torchrun.is_follower() or asked.config.resume):
        assert asked.folder is not None  # a single run has one
        folder = torchrun.shared_folder(asked.folder)
        return run_job(torchrun.as_started(asked.config), folder, None, writes=not torchrun.is_follower())
    before = Before.of(asked.folder) if asked.folder is not None and not asked.multirun else None
    codes: list[int] = []

    @hydra.main(version_base="1.3", config_path="conf", config_name="config")
    def job(config: DictConfig) -> None:
        slurm.become_rank()
        settings = HydraConfig.get()
        config = command_line.with_choices(config, settings.runtime.choices)
        folder = torchrun.shared_folder(Path(settings.runtime.output_dir))
        if settings.mode == RunMode.MULTIRUN:
            codes.append(in_sweep(shown, settings.job.num, settings.overrides.task, config, folder, not torchrun.is_follower()))
        else:
            codes.append(run_job(config, folder, before))

    kind = "sweep" if asked.multirun else "run"
    said = str(asked.folder).replace("'", "\\'")
    here = [] if asked.folder is None else [f"hydra.{kind}.dir='{said}'"]  # its name holds the time: settle it once
    sys.argv = [sys.argv[0], *asked.argv, *here]
    try:
        with show(asked, not torchrun.is_follower()) as shown:
            job()
    except OSError as error:
        if codes:
            raise
        print(f"error: {cannot_write(error, asked.folder)}", file=sys.stderr)  # Hydra could not make the run folder
        return UserError.exit_code
    except UserError as error:  # the sweep's own folder cannot be written
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"interrupted; the same command with hydra.sweep.dir={asked.folder} finishes the sweep", file=sys.stderr)
        return INTERRUPTED
    return min(codes, default=0) if asked.multirun else max(codes, default=0)


if __name__ == "__main__":
    torchrun.leave(main(sys.argv[1:]))
