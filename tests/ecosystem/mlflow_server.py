"""A real MLflow server on this machine's loopback: a database and artifacts in a folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

START_S = 300.0  # on a machine that others use too


@dataclass
class Server:
    """`folder` outlives the processes: a server that is started again has the runs of the one before."""

    folder: Path
    port: int
    process: subprocess.Popen | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        place = ("--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--artifacts-destination", str(self.folder / "artifacts"))
        words = (sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1", *place)
        quick = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # processes that judge answers of language models
        with open(self.folder / "server.log", "a") as log:
            self.process = subprocess.Popen(words, cwd=self.folder, env=quick, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise AssertionError((self.folder / "server.log").read_text()[-3000:]) from None
                time.sleep(0.1)

    def stop(self) -> None:
        """All its processes at once, as a machine that goes away."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def a_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]
