"""python run.py model=dcn sharder=torchrec cluster=h100x64     (--help lists the groups, their choices and examples)"""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from launchers import torchrun
from recsys_lab.config import command_line
from recsys_lab.errors import UserError, cannot_write
from recsys_lab.job import Before, run_job
from recsys_lab.report import say


def main(argv: list[str]) -> int:
    """The exit code of what `argv` asks for: 0 done, 2 a mistake to mend, 3 does not fit, 4 a rank was lost, 1 a bug of ours."""
    argv = torchrun.with_launcher(argv)
    try:
        asked = command_line.read(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if asked.config is not None and (torchrun.is_follower() or asked.config.resume):
        assert asked.folder is not None  # a single run has one
        folder = torchrun.shared_folder(asked.folder)
        return run_job(asked.config, folder, None, writes=not torchrun.is_follower())
    before = Before.of(asked.folder) if asked.folder is not None else None
    codes: list[int] = []

    @hydra.main(version_base="1.3", config_path="conf", config_name="config")
    def job(config: DictConfig) -> None:
        settings = HydraConfig.get()
        sweep = Path(settings.sweep.dir).name if settings.mode == RunMode.MULTIRUN else None
        if sweep is not None:
            say.job(settings.job.num, settings.overrides.task)
        folder = torchrun.shared_folder(Path(settings.runtime.output_dir))
        codes.append(run_job(command_line.with_choices(config, settings.runtime.choices), folder, before, sweep))

    settled = asked.folder is None or any(word.startswith("hydra.run.dir=") for word in argv)
    here = [] if settled else [f"hydra.run.dir='{asked.folder}'"]  # its name holds the time: settle it once
    sys.argv = [sys.argv[0], *asked.argv, *here]
    try:
        job()
    except OSError as error:
        if codes:
            raise
        print(f"error: {cannot_write(error, asked.folder)}", file=sys.stderr)  # Hydra could not make the run folder
        return UserError.exit_code
    return min(codes, default=0) if asked.multirun else max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
