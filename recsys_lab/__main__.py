"""`python -m recsys_lab COMMAND`: each command is a module with `main(argv) -> int`, imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys

from recsys_lab.errors import UserError, did_you_mean

COMMANDS = {
    "doctor": ("recsys_lab.commands.doctor", "what is installed here, what works, and what to do about the rest"),
    "show": ("recsys_lab.commands.show", "a run in the terminal: figures, plan, iteration, config"),
    "frequencies": ("recsys_lab.commands.frequencies", "how often each row is looked up, counted into a file to plan with"),
    "partition": ("recsys_lab.commands.partition", "features into towers: which belong together, found on a short training"),
    "compare": ("recsys_lab.commands.compare", "runs side by side: what differs in config and in figures"),
    "ablation": ("recsys_lab.sweeps.ablation", "a sweep's table written anew: another baseline, or after a kill"),
    "studies": ("recsys_lab.commands.studies", "every table and figure of the papers: its state, and how to make it anew"),
    "flexshard": ("experiments.flexshard.command", "FlexShard: tables and figures of its paper, published values beside ours"),
    "calibrate": ("recsys_lab.commands.calibrate", "measures this machine, so that simulations of cluster=local tell its times"),
    "rank": ("recsys_lab.commands.rank", "which sharder is fastest for a model on a cluster, and which cannot be and why"),
    "validate": ("experiments.validation.command", "published and measured times beside simulated ones, and how far off they are"),
    "dmt": ("experiments.dmt.command", "DMT: tables and figures of its paper, published values beside ours"),
    "emulated": ("experiments.emulated.command", "sharders, formats and exchanges on an emulated network: measured beside simulated"),
    "neo": ("experiments.neo.command", "Neo: tables and figures of its paper, published values beside ours"),
    "cpu_dlrm": ("experiments.cpu_dlrm.command", "the CPU DLRM paper: tables and figures, published values beside ours"),
}


def main(argv: list[str]) -> int:
    """Runs the command that `argv` names; the exit code."""
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(_help())
            return 0
        if argv[0] not in COMMANDS:
            raise UserError(
                "no such command",
                where="python -m recsys_lab",
                given=argv[0],
                allowed=", ".join(COMMANDS),
                remedy=did_you_mean(argv[0], COMMANDS),
            )
        return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, such as `head`, has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _help() -> str:
    lines = [f"  {name:<11} {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(["usage: python -m recsys_lab COMMAND [...]", "", *lines, "", "python -m recsys_lab COMMAND --help says more."])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
