"""One Weights & Biases run per job. Training logs to it through Lightning's own logger. The only file that imports wandb.

Offline unless the user is logged in. Nothing is ever asked, and nothing is written outside the run folder.
Rank 0 calls `start` before training and `finish` after the record is written, in the same process.

A resumed run: online it goes on in the same W&B run. Offline it becomes a new W&B run with the first one's id in `config.resumed_from`. An
offline client cannot see how far the first one came. All ids are kept in `wandb/ids.json`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.files import plain, read_json, write_json
from recsys_lab.base.packages import Package, needs
from recsys_lab.base.ranges import OneOf, text_like
from recsys_lab.errors import UserError
from recsys_lab.record.headline import ARTIFACTS, headline
from recsys_lab.record.loggers import LIGHTNING, Tables, choices

WANDB = Package("wandb", "wandb", "logger=none")
#: What a training with it imports, for the agent of its ranks (launchers/agent.py): two seconds, the second one where a W&B run begins.
LIBRARIES = ("wandb", "wandb.sdk.launch")
MODES = ("auto", "online", "offline")
IDS_FILE = "wandb/ids.json"
#: Seconds until a server that does not answer is given up.
INIT_S = 30.0
#: What W&B takes.
PROJECT = text_like(r"(?=.*\S)[^/\\#?%:\x00-\x1f]+", 128, "a name without / \\ # ? % :")
ENTITY = text_like(r"[A-Za-z0-9][A-Za-z0-9_.-]*", 128, "letters, digits, - _ .")
LONGEST_TAG = 64
TAG = text_like(r"(?=.*\S)[^\x00-\x1f]+", LONGEST_TAG, "some text")


class WandbRun:
    """The W&B run `experiment` of one run folder, whatever other runs this process holds. Only training imports Lightning."""

    def __init__(self, experiment: Any, folder: Path):
        self.experiment, self.folder = experiment, folder

    @functools.cached_property
    def lightning(self) -> Any:
        from lightning.pytorch.loggers import WandbLogger

        run = self.experiment
        return WandbLogger(experiment=run, save_dir=self.folder, project=run.project, name=run.name, id=run.id)

    def log_tables(self, kind: str, tables: Tables, page: str) -> None:
        """Puts `tables` into the run as `kind`/name. An HTML `page` becomes a panel that reports can take."""
        import wandb

        with _inside(self.folder):
            panels: dict[str, Any] = {f"{kind}/page": wandb.Html(page, inject=False)}
            for name, (columns, rows) in tables.items():
                panels[f"{kind}/{name}"] = wandb.Table(columns=list(columns), data=[list(row) for row in rows])
            self.experiment.log(panels)

    def finish(self, status: str) -> None:
        """Puts plan and record into the run as artifacts, the record's figures into its summary, and closes it."""
        import wandb

        run = self.experiment
        with _inside(self.folder):
            for file, kind in ARTIFACTS.items():
                if (path := self.folder / file).exists():
                    artifact = wandb.Artifact(f"{run.id}-{path.stem}", type=kind)
                    artifact.add_file(str(path), policy="immutable")
                    run.log_artifact(artifact)
            if (path := self.folder / "result.json").exists():
                run.summary.update(headline(read_json(path)))
            run.finish(exit_code=0 if status == "completed" else 1)


@needs(WANDB, LIGHTNING)
def start(
    folder: Path,
    config: Mapping[str, Any],
    name: str,
    sweep: str | None = None,
    *,
    project: Annotated[str, PROJECT] = "recsys_lab",
    entity: Annotated[str, ENTITY] | None = None,
    mode: Annotated[str, OneOf(MODES)] = "auto",
    tags: list[Annotated[str, TAG]] | None = None,
    group: Annotated[str, TAG] | None = None,
    system_metrics_interval_s: Annotated[float, Strict(), Interval(ge=0.1, le=86400)] = 5.0,
) -> WandbRun:
    """A new W&B run in `folder`/wandb, with `config` as it ran.

    Args:
        folder, config, name, sweep: those of `recsys_lab.record.loggers.tensorboard`.
        project, entity: of W&B; entity None: W&B's default.
        mode: auto is online if the user is logged in (API key in the environment, .netrc or W&B's settings), else offline.
        tags: of the run, beside its model, sharder, precision, cluster and data.
        group: None: the sweep.
        system_metrics_interval_s: between two samples of system metrics.

    Returns:
        The run, which belongs to `folder` alone.

    Raises:
        UserError: for online without being logged in, and where W&B refuses: by its variables, or because its server does not answer.
    """
    import wandb

    folder = Path(folder).resolve()
    with _refusals():
        online = _online(mode)
    ids = _known_ids(folder)
    same = bool(ids) and online
    run_id = ids[-1] if same else secrets.token_hex(4)
    with _refusals(), _inside(folder):
        run = wandb.init(
            project=project,
            entity=entity,
            dir=str(folder),
            id=run_id,
            name=name,
            group=group or sweep,
            tags=sorted({*(tags or []), *(choice[:LONGEST_TAG] for choice in choices(config).values())}) or None,
            config=plain(dict(config)) | ({"resumed_from": ids[-1]} if ids and not same else {}),
            mode="online" if online else "offline",
            resume="allow" if same else None,
            reinit="create_new",  # never the run of another job in this process
            settings=wandb.Settings(
                console="off",  # the terminal belongs to the launcher
                silent=not online,
                init_timeout=INIT_S,
                x_stats_sampling_interval=system_metrics_interval_s,
            ),
        )
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    if not same:
        write_json(folder / IDS_FILE, [*ids, run_id])
    return WandbRun(run, folder)


def _known_ids(folder: Path) -> list[str]:
    return read_json(path) if (path := folder / IDS_FILE).exists() else []


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What W&B refuses as one line of ours. Its settings are a model of pydantic's, whose error is a ValueError."""
    from wandb.errors import Error
    from wandb.sdk.lib.service.service_token import WandbServiceConnectionError

    try:
        yield
    except (Error, ValueError, WandbServiceConnectionError) as error:
        message = " ".join(str(error).split())[:300]
        remedy = "mend or unset its variable WANDB_..., or use logger.mode=offline or logger=csv"
        raise UserError(f"W&B refuses: {message}", where="logger", remedy=remedy) from None


def _online(mode: str) -> bool:
    """Whether to talk to the server. WANDB_MODE=offline from the user's environment holds for auto."""
    if mode == "online" and not logged_in():
        raise UserError("not logged in to W&B", where="logger.mode", given="online", remedy="run `wandb login`, or use logger.mode=offline")
    return mode == "online" or (mode == "auto" and os.environ.get("WANDB_MODE", "online") == "online" and logged_in())


def logged_in() -> bool:
    """Whether W&B's client would find a key without asking: in the environment, in .netrc or in its settings."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    import wandb
    from wandb.errors import AuthenticationError
    from wandb.sdk.lib.wbauth import read_netrc_auth

    settings = wandb.Settings()
    if settings.api_key:
        return True
    try:
        return read_netrc_auth(host=settings.base_url) is not None
    except AuthenticationError as error:
        raise UserError(
            f"W&B's key is not a key: {error}", where=".netrc", remedy="run `wandb login`, or use logger.mode=offline"
        ) from None


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """W&B keeps its caches and staged files in the home folder. While this lasts, in the run folder."""
    folders = {f"WANDB_{kind}_DIR": str(folder / "wandb" / kind.lower()) for kind in ("CACHE", "DATA", "CONFIG", "ARTIFACT")}
    before = {key: os.environ.get(key) for key in folders}
    os.environ.update(folders)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
