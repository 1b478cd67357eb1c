"""The combinations of a question, each an experiment as run.py would resolve it.

A config is composed for each value of an axis, not for each combination. Sharder, precision, optimizer and profile are groups of their own.
An experiment takes each from the config in which it was chosen. `Combination.words` is the line of run.py with the same figures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import cast

import yaml

from recsys_lab.config import sized
from recsys_lab.config.choices import built
from recsys_lab.config.command_line import CONF
from recsys_lab.config.options import SparseName
from recsys_lab.decide.parallel_map import parallel_map
from recsys_lab.decide.question import AS_SAID, BY_HAND, ClusterAsked, Question, choices_of
from recsys_lab.errors import UserError
from recsys_lab.experiment import LOCAL, Experiment, batch_of_rank, of_words
from recsys_lab.simulate import Profile

#: What is priced beside the config's own choice where the user names none.
PRECISIONS = ("fp32", "fp16_comms", "bf16")
OPTIMIZERS = ("adam", "row_wise_adagrad")
#: Priced where they are named. A paper's opponent: `torchrec_strong` has all that it has, and replicas. And what plans as `torchrec` does
#: where one group of ranks is cheapest.
ONLY_WHERE_NAMED = ("dmt_baseline", "torchrec_2d")


@dataclass(frozen=True)
class Combination:
    """`profiles`: under each of them it is priced. The first is the config's own. `weights`: of the first profiles.

    `batch`: samples of an iteration over all ranks.
    """

    cluster: str
    sharder: str
    precision: str
    optimizer: str
    batch: int
    experiment: Experiment
    profiles: tuple[Profile, ...]
    words: tuple[str, ...]
    weights: tuple[float, ...] = (1.0,)

    @property
    def name(self) -> str:
        return f"{self.cluster} {self.sharder} {self.precision} {self.optimizer}"

    @property
    def shared_work(self) -> tuple[str, str, str, str]:
        """Combinations with the same have much of their planning in common."""
        return self.cluster, self.optimizer, self.experiment.precision.table, self.experiment.precision.dense


def combinations(question: Question) -> list[Combination]:
    """All of them, in the order of the axes. Raises UserError for whatever is wrong with the words."""
    clusters = [(one, _words_of_cluster(one, question)) for one in question.clusters]
    sharders, precisions, optimizers = question.sharders or default_sharders(question), question.precisions, question.optimizers
    if not precisions or not optimizers:  # the model may bring others than the usual ones
        default_choice = _composed(question, clusters[0][1])
        precisions = precisions or _own_first(str(default_choice.choices["precision"]), PRECISIONS)
        optimizers = optimizers or _own_first(default_choice.optimizer.sparse.name, OPTIMIZERS)
    sharder_of: dict[str, Experiment] = {}
    precision_of: dict[str, Experiment] = {}
    cluster_of: dict[str, Experiment] = {}
    configs = range(max(len(sharders), len(precisions), len(clusters)))  # one config has a new value of every axis that has more
    of_axes = [(clusters[n % len(clusters)], sharders[n % len(sharders)], precisions[n % len(precisions)]) for n in configs]
    lines = [[*words, f"sharder={sharder}", f"precision={precision}"] for (_, words), sharder, precision in of_axes]
    for ((cluster, _), sharder, precision), composed in zip(of_axes, parallel_map(partial(_composed, question), lines)):
        sharder_of.setdefault(sharder, composed)
        precision_of.setdefault(precision, composed)
        cluster_of.setdefault(cluster.label, composed)
    for cluster, _ in clusters:
        _check_size(cluster, cluster_of[cluster.label], question)
    profiles = {cluster.label: _profiles(question, cluster_of[cluster.label], words) for cluster, words in clusters}
    expanded = []
    for (cluster, words), sharder, precision, optimizer in itertools.product(clusters, sharders, precisions, optimizers):
        base, its_sharder, its_precision = cluster_of[cluster.label], sharder_of[sharder], precision_of[precision]
        sparse = replace(base.optimizer.sparse, name=cast(SparseName, optimizer))
        choices = {"sharder": its_sharder.choices["sharder"], "precision": its_precision.choices["precision"]}
        experiment = replace(
            base,
            sharder=its_sharder.sharder,
            precision=its_precision.precision,
            optimizer=replace(base.optimizer, sparse=sparse),
            choices={**base.choices, **choices},
        )
        words_of_choice = [f"sharder={sharder}", f"precision={precision}", f"optimizer.sparse.name={optimizer}"]
        expanded.append(
            Combination(
                cluster=cluster.label,
                sharder=str(choices["sharder"]),
                precision=str(choices["precision"]),
                optimizer=sparse.name,
                batch=base.batch_size * base.cluster.world_size,
                experiment=experiment,
                profiles=profiles[cluster.label],
                words=(*_shared(question), *words, *words_of_choice),
                weights=question.weights,
            )
        )
    return expanded


#: A name on file that says how large its cluster is, as h100x64.
SIZED = re.compile(r"x\d+$")


def default_sharders(question: Question) -> tuple[str, ...]:
    """Those that are priced where the user names none, and what is on file of others' plans of the model, pinned by hand."""
    by_hand = (name for name in choices_of(BY_HAND) if f"model={name}" in question.words)
    return *(name for name in choices_of("sharder") if name not in ONLY_WHERE_NAMED), *(f"by_hand/{name}" for name in by_hand)


def _shared(question: Question) -> list[str]:
    mode = [] if any(word.startswith("mode=") for word in question.words) else ["mode=simulate"]
    return [*question.words, *mode]


def _composed(question: Question, words: Sequence[str]) -> Experiment:
    made = of_words([*_shared(question), *words], where="decide", needed="one model and one data set are needed")
    if made.study is not None:
        raise UserError("a study asks a question of its own", where="experiment", given=made.choices["experiment"], remedy="drop it")
    return made


def _own_first(default: str, others: Sequence[str]) -> tuple[str, ...]:
    return (default, *(other for other in others if other != default))


def _words_of_cluster(cluster: ClusterAsked, question: Question) -> list[str]:
    """Those that name it, with its size, its price and its part of the batch."""
    words = list(cluster.words)
    if cluster.price is not None:
        words.append(f"++cluster.price_per_device_hour={str(cluster.price).removesuffix('.0')}")  # a user's file need not have the key
    if words[0] == f"cluster={LOCAL}" or "launcher=emulated" in question.words:
        return [*words, f"data.batch_size={question.batch}"]
    return [*words, f"simulate.batch_size={_per_rank(cluster, words, question)}"]


def _per_rank(cluster: ClusterAsked, words: Sequence[str], question: Question) -> int:
    """Samples of the global batch that each device has."""
    changed = any(word.lstrip("+").startswith(("cluster.", "hydra.")) for word in question.words)
    on_file = cluster.label in sized.on_file() and not changed
    devices = (built("cluster", cluster.label) if on_file else _composed(question, words).cluster).world_size
    given = f"{question.batch:,} samples for {devices} devices of {cluster.label}"
    return batch_of_rank(question.batch, devices, "batch", given)


def _check_size(cluster: ClusterAsked, experiment: Experiment, question: Question) -> None:
    """Words of the user's may have changed what its name says."""
    world, devices = experiment.cluster.world_size, cluster.devices
    if devices is None and cluster.label in sized.on_file() and SIZED.search(cluster.label):
        devices = built("cluster", cluster.label).world_size
    if devices not in (None, world):
        given = f"{world} devices by cluster.hosts and cluster.ranks_per_host"
        raise UserError("the name says another size", where=cluster.label, given=given, remedy="drop these words")


def _profiles(question: Question, base: Experiment, words: Sequence[str]) -> tuple[Profile, ...]:
    """The config's own first. Others are plausible if they were fitted to times of such devices. A CPU's are of one software each."""
    if question.profiles and AS_SAID not in question.profiles:
        return tuple(built("profile", name) for name in question.profiles)
    if question.profiles or base.cluster.device.kind != "cuda":
        return (base.profile,)
    return (base.profile, *(profile for profile in _fitted(base.cluster.device.kind) if profile.name != base.profile.name))


@cache
def _fitted(kind: str) -> tuple[Profile, ...]:
    """Those on file that were fitted to times of such devices, as their files say."""
    figures = {name: yaml.safe_load((CONF / "profile" / f"{name}.yaml").read_text(encoding="utf-8")) for name in choices_of("profile")}
    fitted = [name for name, file in figures.items() if file.get("relative_error") is not None and file.get("fitted_kind", "cuda") == kind]
    return tuple(built("profile", name) for name in fitted)
