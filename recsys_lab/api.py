"""An experiment from Python: composed, planned, explained, priced, run and read back. `import recsys_lab` is enough to call these.

Each function takes the words of `run.py`, or an `Experiment` that `compose` made. Nothing is written but by `run`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO, get_type_hints

from recsys_lab.base import paths
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config import command_line
from recsys_lab.config.overrides import overrides_from_kwargs
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.explain import explain as sentences_of
from recsys_lab.plan.explain import table_facts
from recsys_lab.planning import Planned, check_calibrated, plan_for, planned_as, price, with_interval
from recsys_lab.record.run_folder import DEEPEST, Run, read_record, read_run, runs_below
from recsys_lab.simulate import Simulated
from recsys_lab.tables import Table
from recsys_lab.units import counted, grid

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


RUN_PY = "recsys_lab_run_py"


@dataclass(frozen=True)
class Explanation:
    """Why a plan is as it is.

    Attributes:
        sentences: size, schemes and balance of the plan, then the planner's own reasons.
        tables: for each table its name, where it lies and why.
        alternatives: other plans that the planner compared, with its figures; empty where it compares none.
    """

    sentences: tuple[str, ...]
    tables: tuple[dict[str, str], ...]
    alternatives: tuple[dict[str, str], ...]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class RunFailed(UserError):
    """A run that ended with another exit code than 0.

    Attributes:
        exit_code: that of `python run.py`.
        reason: the last line that it wrote to stderr.
    """

    def __init__(self, exit_code: int, folder: Path, reason: str):
        super().__init__(f"the run ended with exit code {exit_code}", where=folder, remedy=reason)
        self.exit_code, self.reason = exit_code, reason


class _Heard(io.StringIO):
    """Passes on what is written, and keeps its last line."""

    def __init__(self, beyond: TextIO):
        super().__init__()
        self.beyond, self.text = beyond, ""

    def write(self, text: str) -> int:
        self.text = (self.text + text)[-10_000:]
        return self.beyond.write(text)

    def flush(self) -> None:
        self.beyond.flush()

    def isatty(self) -> bool:
        return self.beyond.isatty()

    def fileno(self) -> int:
        return self.beyond.fileno()

    def last(self) -> str:
        return self.text.rstrip().rpartition("\n")[2].removeprefix("error: ")


def compose(*words: str, **keys: Any) -> Experiment:
    """The experiment of run.py's words, checked.

    Args:
        words: such as "model=dcn", "cluster.hosts=4", "optimizer.sparse.lr=0.1".
        keys: words without a point as keywords: model="dcn".

    Returns:
        An Experiment. Its parts are values: `dataclasses.replace(experiment, cluster=...)` makes another one.

    Raises:
        UserError: for the first thing wrong with the words.

    >>> compose("model=dcn", sharder="dmt", cluster="h100x64").cluster.world_size
    64
    """
    return of_words(overrides_from_kwargs(words, keys, "compose"), where="compose")


def plan(experiment: Experiment | str, *words: str, given: ShardingPlan | None = None, **keys: Any) -> Planned:
    """Where each table goes on the named cluster, and the steps of an iteration.

    Args:
        experiment: what `compose` made, or the first of its words.
        words, keys: those of `compose`, where no experiment is given.
        given: a plan that was made before, in place of the planner's.

    Returns:
        A Planned: `plan` (where every shard lies), `steps` (in order, with bytes), `cluster`, `tables`, `access` and `workload`.

    Raises:
        UserError: for what cannot be planned. PlanDoesNotFit: where a rank lacks memory. It names the nearest change that fits.

    >>> made = plan("model=dcn_mlperf", "data=random", sharder="torchrec_row_wise", cluster="h100x64")
    >>> len(made.plan.placements), made.steps.world_size
    (26, 64)
    """
    quiet_torchrec()
    resolved = _experiment(experiment, words, keys)
    data = resolved.open_data()
    resolved.check(data)
    if given is None:
        return plan_for(resolved, data)
    _check_is_for(given, resolved, resolved.tables(data))
    return planned_as(resolved, data, given)


def explain(experiment: Experiment | str, *words: str, **keys: Any) -> Explanation:
    """Why the plan is as it is.

    Args:
        experiment, words, keys: those of `plan`.

    Returns:
        An Explanation; `print` shows its sentences.

    Raises:
        UserError, PlanDoesNotFit: as `plan` does.

    >>> print(explain("model=dcn_mlperf", "data=random", sharder="torchrec_row_wise", cluster="h100x64").tables[0]["where"])
    rows in equal blocks on ranks 0-63
    """
    resolved = _experiment(experiment, words, keys)
    planned = plan(resolved)
    reasons = resolved.sharder.planner.reasons(planned.plan, planned.inputs) if resolved.cluster.calibrated else None
    explanation = reasons.explanation() if reasons is not None else {"sentences": [], "columns": [], "rows": []}
    return Explanation(
        (*sentences_of(planned.plan), *explanation["sentences"]),
        tuple({"table": fact.table.name, "where": fact.where, "why": fact.why} for fact in table_facts(planned.plan)),
        tuple(dict(zip(explanation["columns"], row)) for row in explanation["rows"]),
    )


def simulate(experiment: Experiment | str, *words: str, given: ShardingPlan | None = None, **keys: Any) -> Simulated:
    """What an iteration takes on the named cluster.

    Args:
        experiment, words, given, keys: those of `plan`.

    Returns:
        A Simulated: `iteration_ms` with its 90 % interval, `phases_ms`, `collectives`, `bytes_per_rank`. The figures of `mode=simulate`.

    Raises:
        UserError, PlanDoesNotFit: as `plan` does. UserError also where the cluster lacks a figure that a step needs, or is not calibrated.

    >>> priced = simulate("model=dcn_mlperf", "data=random", sharder="torchrec_row_wise", cluster="h100x64")
    >>> priced.world_size, priced.iteration_ms > 0
    (64, True)
    """
    resolved = _experiment(experiment, words, keys)
    check_calibrated(resolved.cluster)
    planned = plan(resolved, given=given)
    return with_interval(price(planned, resolved.profile)[0], planned, resolved.profile)


def run(*words: str, folder: Path | str | None = None, **keys: Any) -> Run:
    """Runs what `python run.py` would with the same words: one run, in a folder of its own.

    Args:
        words, keys: those of `compose`.
        folder: the run folder; None: a new one below `runs`.

    Returns:
        A Run: `result` (the record), `plan`, `config` and what else lies in the folder.

    Raises:
        UserError: for words that are wrong or a sweep. RunFailed: for a run that ended with another exit code than 0.

    >>> made = run("mode=plan", "model=dcn", "data=random", logger="none", folder="runs/planned")  # doctest: +ELLIPSIS
          data  train ...
    >>> made.result["status"], len(made.plan.placements)
    ('completed', 26)
    """
    line = overrides_from_kwargs(words, keys if folder is None else keys | {"hydra.run.dir": Path(_path(folder, "run folder"))}, "run")
    run = command_line.read_run(line, where="run")
    paths.on_path()
    heard = _Heard(sys.stderr)
    with contextlib.redirect_stderr(heard):
        code: int = _run_py().main(line, run)
    if code:
        raise RunFailed(code, run.folder, heard.last())
    return read_run(run.folder)


def _run_py() -> ModuleType:
    """run.py, which no module of the package may know. A script of the user's has that name often, so it is loaded by its path."""
    if (loaded := sys.modules.get(RUN_PY)) is None:
        spec = importlib.util.spec_from_file_location(RUN_PY, paths.ROOT / "run.py")
        assert spec is not None and spec.loader is not None
        loaded = sys.modules[RUN_PY] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    return loaded


def load(path: Path | str) -> pandas.DataFrame:
    """The records of one run, or of all runs in a folder such as a sweep's or a folder of sweeps: a row for each.

    Args:
        path: a run folder, or one with run folders in it, up to three levels down.

    Returns:
        A DataFrame: `folder`, and each field of result.json under its path, such as "simulated.iteration_ms".

    Raises:
        UserError: where no run lies there, or a record is broken.

    >>> made = run("mode=plan", "model=dlrm", "data=random", logger="none", folder="runs/another")  # doctest: +ELLIPSIS
          data  train ...
    >>> load("runs/another")[["choices.model", "seed"]].values.tolist()
    [['dlrm', 1]]
    """
    import pandas

    at = Path(_path(path, "load"))
    folders = list(runs_below(at))
    if not folders:
        raise UserError("no run lies here", where=at, allowed=f"a run folder, or a folder with some in it, up to {DEEPEST} levels down")
    return pandas.json_normalize([{"folder": str(folder)} | read_record(folder) for folder in folders])


def _path(value: Path | str, where: str) -> Path | str:
    if not isinstance(value, str | Path) or not str(value):
        raise UserError("a path is needed", where=where, given=type(value).__name__ if str(value) else "an empty text")
    return value


def _check_is_for(plan: object, experiment: Experiment, tables: Sequence[Table]) -> None:
    """Raises UserError for a plan of other tables, or of another number of ranks."""
    if not isinstance(plan, ShardingPlan):
        remedy = "give its .plan" if isinstance(plan, Planned) else None
        raise UserError("a plan is needed", where="given", given=type(plan).__name__, allowed="a ShardingPlan", remedy=remedy)

    def of(tables: Sequence[Table], hosts: int, ranks: int) -> tuple[list[tuple[str, int, int]], str]:
        return sorted((t.name, t.rows, t.dim) for t in tables), f"{counted(len(tables), 'table')} on {grid(hosts, ranks)}"

    of_plan = of(plan.tables, plan.hosts, plan.ranks_per_host)
    of_experiment = of(tables, experiment.cluster.hosts, experiment.cluster.ranks_per_host)
    if of_plan != of_experiment:
        differ = sorted(set(of_plan[0]) ^ set(of_experiment[0]))
        given = f"{of_plan[1]}{', such as ' + differ[0][0] if differ else ''}"
        raise UserError("of other tables or ranks than the experiment", where="plan", given=given, allowed=of_experiment[1])


def _experiment(experiment: Experiment | str, words: Sequence[str], keys: dict[str, Any]) -> Experiment:
    if not isinstance(experiment, Experiment):
        return compose(experiment, *words, **keys)
    if words or keys:
        raise UserError(
            "words beside an experiment",
            where="experiment",
            given=" ".join(overrides_from_kwargs(words, keys, "plan")),
            remedy="compose them",
        )
    for name, kind in PARTS.items():
        if not isinstance(part := getattr(experiment, name), kind):
            remedy = f"compose the words, and take the {name} of that experiment"
            raise UserError("no such part of an experiment", where=f"experiment.{name}", given=part, allowed=kind.__name__, remedy=remedy)
    return experiment


#: Of an experiment, what `dataclasses.replace` may have put there.
PARTS: dict[str, type] = {name: kind for name, kind in get_type_hints(Experiment).items() if isinstance(kind, type) and is_dataclass(kind)}

__all__ = ["Explanation", "Planned", "RunFailed", "Simulated", "compose", "explain", "load", "plan", "run", "simulate"]
