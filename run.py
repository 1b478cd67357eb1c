"""python run.py model=dcn sharder=torchrec cluster=h100x64     (--help lists the groups, their choices and examples)"""

import sys

from launchers import torchrun
from recsys_lab.base.environment import check_process
from recsys_lab.config.command_line import Question, SingleRun, Sweep, read
from recsys_lab.config.question import ask_hydra
from recsys_lab.job import Program, claimed, run_job
from recsys_lab.studies.catalogue import with_studies
from recsys_lab.sweeps.run import sweep


def main(argv: list[str], line: SingleRun | Sweep | Question | None = None) -> int:
    """The exit code of what `argv` asks for. `line`: the same, where a program has read it already."""
    with Program() as program:
        check_process()
        program.line = line = line or read(with_studies(torchrun.completed(argv)))
        if isinstance(line, Question):
            ask_hydra(line)
        else:
            leads = not torchrun.is_follower()
            with claimed(line, leads) as ownership:
                torchrun.remember(line.folder)
                if isinstance(line, Sweep):
                    program.codes += sweep(line, leads)
                else:
                    program.codes.append(run_job(*torchrun.joined(line.config, line.folder), ownership, writes=leads, words=line.overrides))
    return program.exit_code


if __name__ == "__main__":
    torchrun.leave(main(sys.argv[1:]))
