"""MovieLens (Harper and Konstan 2015), any of its releases: a log of ratings with times, read as `interactions` reads any log."""

from __future__ import annotations

from recsys_lab.base.ranges import Length, Seed
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.interactions import Loss, Negatives, Objective, Passes, Pooling, open_interactions
from recsys_lab.data.protocol import Feature
from recsys_lab.data.sources import check_root, find_file, missing_file, named_file
from recsys_lab.data.text import OnBadLine

#: The ratings' file by release, and its columns. Releases are 1M and 10M; 20M, 25M, 32M and the latest; 100K; and 100K as RecBole has it.
RELEASES = {
    "ratings.dat": ["user", "item", "rating", "time"],
    "ratings.csv": None,  # its header says so
    "u.data": ["user", "item", "rating", "time"],
    "ml-100k.inter": None,
    "ml-1m.inter": None,
}


def open_movielens(
    wanted: tuple[Feature, ...] | None = None,
    *,
    root: str | None,
    file: str | None,
    on_bad_line: OnBadLine,
    time: bool,
    event_times: bool,
    objective: Objective,
    pooling: Pooling,
    max_length: Length | None,
    loss: Loss | None,
    negatives: Negatives | None,
    passes: Passes,
    seed_of_negatives: Seed,
    cache: str | None,
) -> OpenDataSet:
    """The release in `root`. Other files beside its ratings do not matter. Every rating counts as an interaction.

    A user's last item by time is the test, the one before it the validation.
    Raises UserError where there is no ratings' file, or a bad one.
    """
    folder = check_root(root)
    path = named_file(folder, file, "data.file") if file else find_file(folder, list(RELEASES))
    if path is None:
        raise missing_file(folder, list(RELEASES), "ratings")
    return open_interactions(
        wanted,
        root=root,
        file=str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path),
        format="log",
        columns=RELEASES.get(path.name.removesuffix(".gz")),
        on_bad_line=on_bad_line,
        category=None,
        time=time,
        event_times=event_times,
        objective=objective,
        pooling=pooling,
        max_length=max_length,
        loss=loss,
        negatives=negatives,
        passes=passes,
        seed_of_negatives=seed_of_negatives,
        cache=cache,
    )
