"""Lightning's MLflow logger, with our tables and artifacts. In a file of its own, since Lightning imports torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger

from recsys_lab.base.files import plain, read_json
from recsys_lab.record.headline import ARTIFACTS, headline
from recsys_lab.record.loggers import Tables

#: Until an MLflow server that did not answer is called again, seconds. Twice as long each time.
PAUSE_S = 30.0


class MlflowRun(MLFlowLogger):
    """The MLflow run of one run folder. A server that goes away does not end a training.

    `last_steps`: by metric, the last step that a resumed run has on the server already. `why`: an error of the client in one line.
    """

    def __init__(self, folder: Path, why: Callable[[Exception], str], **options: Any):
        super().__init__(**options)
        self.folder, self.why, self.last_steps = folder, why, dict[str, int]()
        self.monitor: Any = None
        self._unsent: list[tuple[dict[str, float], int]] = []
        self._pause_s, self._not_before, self._last_step = PAUSE_S, 0.0, 0

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Figures of `step`. What the server does not take is kept, and sent again later. Never fails."""
        step = step or 0
        self._last_step = max(self._last_step, step)
        self._unsent.append(({key: value for key, value in metrics.items() if step > self.last_steps.get(key, -1)}, step))
        if time.monotonic() >= self._not_before:
            self._try(self._send, "it is called again later")

    def log_tables(self, kind: str, tables: Tables, page: str) -> None:
        """Puts `tables` into the run as artifacts `kind`/name.json. An HTML `page` becomes `kind`/page.html."""

        def put() -> None:
            for name, (columns, rows) in tables.items():
                by_column = plain({column: [row[at] for row in rows] for at, column in enumerate(columns)})
                self.experiment.log_table(self.run_id, by_column, f"{kind}/{name}.json")
            self.experiment.log_text(self.run_id, page, f"{kind}/page.html")

        self._try(put, f"its tables are in {self.folder}")

    def finalize(self, status: str = "success") -> None:
        """What Lightning says when training ends. Well: evaluation and record follow. Else nothing does."""
        if status != "success":
            self.finish("failed")

    def finish(self, status: str) -> None:
        """Puts plan and record into the run as artifacts, the record's figures too, and closes it. Never fails."""
        if self.monitor is not None:
            self.monitor.finish()
            self.monitor = None
        self._try(lambda: self._end(status), f"the run there is not whole, its figures are in {self.folder}")

    def _end(self, status: str) -> None:
        figures = headline(read_json(path)) if (path := self.folder / "result.json").exists() else {}
        tags = {key: value for key, value in figures.items() if isinstance(value, str)}
        self._unsent.append(({key: value for key, value in figures.items() if key not in tags}, self._last_step))
        self._send()
        for key, value in tags.items():
            self.experiment.set_tag(self.run_id, key, value)
        for file in ARTIFACTS:
            if (self.folder / file).exists():
                self.experiment.log_artifact(self.run_id, str(self.folder / file))
        super().finalize("success" if status == "completed" else "failed")

    def _send(self) -> None:
        while self._unsent:
            super().log_metrics(*self._unsent[0])
            del self._unsent[0]

    def _try(self, call: Callable[[], None], then: str) -> None:
        """Does `call`. Where it fails, one line says so and what `then`, and the server is left alone for a while."""
        from mlflow.exceptions import MlflowException

        try:
            call()
        except (MlflowException, OSError) as error:
            self._not_before = time.monotonic() + self._pause_s
            self._pause_s *= 2
            print(f"mlflow: {self.why(error)}; {then}", file=sys.stderr, flush=True)
