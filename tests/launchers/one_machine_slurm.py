"""A real SLURM of one node on this machine: munged, slurmctld and slurmd from the distribution's packages, in a folder of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
START_S = 30.0
STEPS_S = 20.0

CONFIG = """
ClusterName=here
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={controller}
SlurmdPort={daemon}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
InactiveLimit=0
SlurmdParameters=config_overrides
NodeName={host} CPUs={cpus} RealMemory={memory_mb} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def available() -> bool:
    """Whether this machine has SLURM's programs and lets us start its daemons."""
    return os.geteuid() == 0 and all(shutil.which(program) for program in PROGRAMS)


@contextmanager
def slurm(folder: Path, cpus: int) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` finds the cluster; everything that was started ends with the context."""
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    os.chmod(folder, 0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    memory_mb = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20 * 0.9)
    controller, daemon = _free_ports(2)
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=folder, cpus=cpus, memory_mb=memory_mb, controller=controller, daemon=daemon))
    environment = os.environ | {"SLURM_CONF": str(config)}
    started: list[subprocess.Popen] = []
    munge = [f"--key-file={key}", f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log"]
    seed = f"--seed-file={folder}/munge.seed"
    try:
        for command in (["munged", "--foreground", "--force", *munge, seed], ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c"]):
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.5)
        _wait_until_idle(environment, folder)
        yield environment
    finally:
        subprocess.run(["scancel", "--user", "root"], env=environment, capture_output=True, check=False)
        _wait_for_steps(folder)  # one that ends after the daemons looks for them for ever
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for step in steps_of(folder):
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(step, signal.SIGKILL)


def steps_of(folder: Path) -> list[int]:
    """Processes of jobs' steps (slurmstepd) that write to the log of the daemon in `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            opened = (os.readlink(one) for one in (process / "fd").iterdir())
            if (process / "comm").read_text().strip() == "slurmstepd" and str(folder / "slurmd.log") in opened:
                found.append(int(process.name))
    return found


def _wait_for_steps(folder: Path) -> None:
    until = time.monotonic() + STEPS_S
    while steps_of(folder) and time.monotonic() < until:
        time.sleep(0.2)


def _wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, check=False)
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.3)
    logs = "\n".join(path.read_text()[-1500:] for path in folder.glob("*.log"))
    raise AssertionError(f"SLURM does not start: {done.stdout}{done.stderr}\n{logs}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
