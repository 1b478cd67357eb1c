"""Network namespaces that live as long as this process does.

Each is held by a `cat` that reads from a pipe of ours. When we end, however that happens, the pipe closes and `cat` ends. With the last
process in it the namespace goes, its links with it. Nothing has a name on the machine, so nothing can be left behind. As root, or in a user
namespace of our own where the system lets everybody have one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.errors import UserError

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TOOLS = ("ip", "tc", "unshare", "nsenter")
START_S = 10.0


@dataclass(frozen=True)
class Namespace:
    """A network namespace. `pid`: of the process that holds it; `in_user_namespace`: whether a user namespace of ours owns it."""

    pid: int
    in_user_namespace: bool

    def enter(self) -> None:
        """Moves the calling thread, the only one of its process, into it."""
        libc = ctypes.CDLL(None, use_errno=True)
        kinds = [("user", CLONE_NEWUSER)] if self.in_user_namespace else []
        for name, flag in [*kinds, ("net", CLONE_NEWNET)]:
            handle = os.open(f"/proc/{self.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if libc.setns(handle, flag) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, f"setns {name}: {os.strerror(number)}")
            finally:
                os.close(handle)

    def run(self, command: Sequence[str]) -> str:
        """The output of `command` in it. Raises RuntimeError with what it said."""
        user = ["-U", "--preserve-credentials"] if self.in_user_namespace else []
        done = subprocess.run(["nsenter", "-t", str(self.pid), *user, "-n", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
        return done.stdout


class Namespaces:
    """Makes `count` of them, and lets go of all at the end of its context. Raises UserError where this machine has none to give."""

    def __init__(self, count: int):
        self.count = count
        self._holders: list[subprocess.Popen] = []

    def __enter__(self) -> list[Namespace]:
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise _refused(f"no {', '.join(missing)} on this machine", "install iproute2 and util-linux")
        own_user = os.geteuid() != 0
        try:
            namespaces = [self._hold(own_user, None)]
            namespaces += [self._hold(own_user, namespaces[0]) for _ in range(self.count - 1)]
        except (OSError, RuntimeError) as error:
            self.__exit__()
            raise _refused(str(error), "run as root, or allow user namespaces") from None
        return namespaces

    def __exit__(self, *_: object) -> None:
        for holder in self._holders:
            assert holder.stdin is not None
            holder.stdin.close()
        for holder in self._holders:
            holder.wait()

    def _hold(self, own_user: bool, first: Namespace | None) -> Namespace:
        """Starts a process in a namespace of its own. The first one, where need be, is in a user namespace that the others share."""
        command = ["unshare", "--net", "cat"]
        if own_user:
            command = ["unshare", "--user", "--map-root-user", "--net", "cat"]
            if first is not None:
                command = ["nsenter", "-t", str(first.pid), "-U", "--preserve-credentials", "unshare", "--net", "cat"]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._holders.append(holder)
        until = time.monotonic() + START_S
        while _command_of(holder.pid) != "cat":
            if holder.poll() is not None or time.monotonic() > until:
                assert holder.stderr is not None
                raise RuntimeError(holder.stderr.read().strip() if holder.poll() is not None else "unshare does not answer")
            time.sleep(0.005)
        return Namespace(holder.pid, own_user)


def _command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def _refused(why: str, remedy: str) -> UserError:
    return UserError(
        "this machine gives no network namespaces", where="launcher emulated", given=why, remedy=f"{remedy}; or use launcher=local"
    )
