"""python run.py model=dcn sharder=torchrec cluster=h100x64     (--help lists the groups, their choices and examples)"""

import sys

from recsys_lab.base.streams import Streams, quiet_interrupts

if __name__ == "__main__":
    quiet_interrupts()  # before libraries are imported, which takes a second

import hydra
from omegaconf import DictConfig

from launchers import slurm, torchrun
from recsys_lab.base.environment import check_variables
from recsys_lab.base.files import check_here
from recsys_lab.config import command_line, composition
from recsys_lab.job import Ending, Outcome, owned
from recsys_lab.studies.catalogue import with_studies
from recsys_lab.sweeps.job import in_sweep, show


def main(argv: list[str]) -> int:
    """The exit code of what `argv` asks for (`Outcome.code`)."""
    with Streams() as streams, Outcome() as outcome:
        check_here()
        check_variables()
        torchrun.check_variables()
        line = outcome.line = command_line.read_to_run(with_studies(torchrun.going_on(torchrun.with_launcher(argv))))

        @hydra.main(version_base="1.3", config_path=str(command_line.CONF), config_name="config")
        def job(config: DictConfig) -> None:
            slurm.become_rank()
            run, leads = line.run or command_line.started_by_hydra(config), not torchrun.is_follower()  # SLURM's task is a rank by now
            folder = torchrun.shared_folder(run.folder)
            if line.multirun:
                outcome.codes.append(in_sweep(shown, run, folder, writes=leads))
                return
            with Ending(torchrun.as_started(run.config), folder, outcome.codes, mine, writes=leads) as ending:
                ending.say(ending.work()())

        with (
            composition.hydra_errors(),
            composition.mode_is_read(),
            composition.lists_are_read(),
            owned(line, not torchrun.is_follower()) as mine,
            show(line, outcome.codes, mine) as shown,
        ):
            torchrun.remember(line.folder)
            sys.argv[1:] = line.argv
            job(line.begun_config(torchrun.is_follower()))  # passed on by Hydra as it is; without one, Hydra begins the run's folder
    return streams.code(outcome.code)


if __name__ == "__main__":
    torchrun.leave(main(sys.argv[1:]))
