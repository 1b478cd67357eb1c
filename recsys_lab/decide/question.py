"""What is asked: the axes of the combinations, read from words such as `clusters=h100x64:2.50,a100x128:1.50 batch=65536`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recsys_lab.base.paths import CONF
from recsys_lab.base.ranges import Count, NotNegative, Positive
from recsys_lab.base.schema import checked
from recsys_lab.config import sized
from recsys_lab.config.arguments import conf_here
from recsys_lab.config.no_run_folder import check_no_run_folder
from recsys_lab.config.options import SPARSE_OPTIMIZERS
from recsys_lab.decide import run_asked
from recsys_lab.decide.run_asked import RunAsked, parse_run
from recsys_lab.decide.sizes import SizeRange, sizes_of
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.tables.torchrec_dry_run import batch_of_request

WHERE = "decide"
#: The cluster of the processes here.
LOCAL = "local"
AXES = ("clusters", "sharders", "precisions", "optimizers", "profiles")
#: What else is decide's own.
OTHERS = ("batch", "trainable")
#: Others' plans of one model each, by its name.
BY_HAND = "sharder/by_hand"
#: Of the profiles: what the words say, and no other.
AS_SAID = ""


@dataclass(frozen=True)
class ClusterAsked:
    """`label`: as the user wrote it. `words`: those of run.py that name it. `devices`: None where a file says how many.

    `price`: dollars per device-hour; None: the file's, if it has one.
    """

    label: str
    words: tuple[str, ...]
    devices: int | None = None
    price: float | None = None


@dataclass(frozen=True)
class Question:
    """`words`: run.py's that all combinations share. Each axis: names of choices, empty for the usual ones. `profiles` may be `AS_SAID`.

    `batch`: samples of an iteration over all ranks. `weights`: of the first profiles, as many as are weighed, whose sum is 1.
    `trainable`: only what trains here can be chosen. `ranges`: clusters that were asked for in several sizes. `run`: the whole run.
    """

    words: tuple[str, ...]
    clusters: tuple[ClusterAsked, ...]
    batch: int
    weights: tuple[float, ...] = (1.0,)
    trainable: bool = True
    sharders: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    ranges: tuple[SizeRange, ...] = ()
    run: RunAsked = field(default_factory=RunAsked)


def parse_question(words: Sequence[str]) -> Question:
    """Reads `words`: the axes above, `batch`, what is asked of a whole run, and whatever run.py takes.

    Raises UserError for what cannot be asked.
    """
    check_no_run_folder(words, WHERE, "simulate", "name the page: --page FILE")
    own: dict[str, str] = {}
    rest = []
    for word in words:
        key, equals, value = word.partition("=")
        axis = key if key in AXES else f"{key}s" if key in ("cluster", "sharder", "precision") else key
        if not equals or axis not in (*AXES, *OTHERS, *run_asked.KEYS):
            rest.append(word)
            continue
        if axis in own:
            raise UserError("said twice", where=axis, given=word, remedy="name all of them in one word")
        own[axis] = value
    if not any(word.startswith("model=") for word in rest):
        remedy = "name one: model=dcn_mlperf, or your own tables: model=tables model.file=FILE"
        raise UserError("a model is needed", where=WHERE, remedy=remedy)
    if "clusters" not in own:
        remedy = "name some, with dollars per device-hour: clusters=h100x64:2.50,a100x128:1.50"
        raise UserError("a cluster is needed", where=WHERE, remedy=remedy)
    if "batch" not in own and (request := batch_of_request(_value_of("model.file", rest))) is not None:
        own["batch"] = str(math.prod(request))
    if "batch" not in own:
        raise UserError("a batch is needed", where=WHERE, remedy="give the samples of an iteration over all devices: batch=65536")
    changed = [word for word in rest if word.startswith("simulate.profile.")]
    if "profiles" in own and changed:
        given = f"{changed[0]} profiles={own['profiles']}"
        raise UserError("figures of one profile, and several profiles", where="profiles", given=given, remedy="drop one of the two")
    bring = conf_here() is not None or any(word.startswith(("hydra.searchpath=", "--config-dir", "-cd")) for word in rest)
    sized_items = [sizes_of(item, "clusters") for item in items_of("clusters", own["clusters"])]
    clusters = tuple(cluster_asked(item, bring) for _, items in sized_items for item in items)
    labels = [cluster.label for cluster in clusters]
    if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
        raise UserError("named twice", where="clusters", given=own["clusters"], remedy=f"give {twice[0]} one price")
    _check_said_once(rest, own, clusters)
    named, weights = weighed_profiles(own)
    names_profile = any(word.startswith(("profile@simulate.profile=", "simulate.profile.")) for word in rest)
    return Question(
        words=tuple(rest),
        clusters=clusters,
        sharders=_choices("sharders", own, (*choices_of("sharder"), *(f"by_hand/{name}" for name in choices_of(BY_HAND))), bring),
        precisions=_choices("precisions", own, choices_of("precision"), bring),
        optimizers=_choices("optimizers", own, SPARSE_OPTIMIZERS, False),
        profiles=_choices("profiles", named, choices_of("profile"), bring) or ((AS_SAID,) if names_profile else ()),
        batch=batch_of(own["batch"]),
        ranges=tuple(each for each, _ in sized_items if each is not None),
        run=parse_run({key: own[key] for key in run_asked.KEYS if key in own}, labels),
        weights=weights,
        trainable=_yes_or_no("trainable", own.get("trainable", "true")),
    )


def _value_of(key: str, words: Sequence[str]) -> str | None:
    return next((word.partition("=")[2] for word in words if word.partition("=")[0] == key), None)


def _check_said_once(words: Sequence[str], own: Mapping[str, str], clusters: Sequence[ClusterAsked]) -> None:
    """Raises UserError for a word of run.py whose value one of `own` says too: it would be dropped."""
    keys = {word.lstrip("+~").partition("=")[0]: word for word in words}
    here = any(cluster.label == LOCAL for cluster in clusters) or "launcher=emulated" in words
    own_word = {"simulate.batch_size": "batch", "optimizer.sparse.name": "optimizers", "profile@simulate.profile": "profiles"}
    own_word |= {"data.batch_size": "batch"} if here else {}
    own_word |= {"cluster.price_per_device_hour": "clusters"} if any(cluster.price is not None for cluster in clusters) else {}
    for key, axis in own_word.items():
        if key in keys and axis in own:
            raise UserError("said twice", where=key, given=f"{keys[key]} {axis}={own[axis]}", remedy=f"drop one of the two: {axis} says it")


def batch_of(text: str) -> int:
    """Raises UserError for what is no number of samples."""
    try:
        batch = int(text.replace("_", ""))
    except ValueError:
        raise UserError("not a number of samples", where="batch", given=text, allowed="a whole number, such as 65536") from None
    checked(batch, Count, "batch")
    return batch


def _yes_or_no(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UserError("not a yes or no", where=key, given=text or "nothing", allowed="true, false")
    return text.lower() == "true"


def weighed_profiles(own: Mapping[str, str]) -> tuple[dict[str, str], tuple[float, ...]]:
    """The profiles of `torchrec:3,hugectr:1` without their weights, and these, which sum to 1. Without any, the first has all.

    Raises UserError for a weight that is none, for weights of some alone, and for weights that are all 0.
    """
    if "profiles" not in own or ":" not in own["profiles"]:
        return dict(own), (1.0,)
    items, given, allowed = own["profiles"].split(","), own["profiles"], "a weight for each, such as torchrec:3,hugectr:1"
    names, colons, texts = zip(*(item.partition(":") for item in items))
    if not all(colons):
        raise UserError("a profile without a weight", where="profiles", given=given, allowed=allowed)
    try:
        weights = [float(text) for text in texts]
    except ValueError:
        raise UserError("not a weight", where="profiles", given=given, allowed=allowed) from None
    for name, weight in zip(names, weights):
        checked(weight, NotNegative, f"profiles: weight of {name}")
    if not sum(weights):
        raise UserError("every weight is 0", where="profiles", given=given, allowed=allowed)
    return {**own, "profiles": ",".join(names)}, tuple(weight / sum(weights) for weight in weights)


def choices_of(group: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (CONF / group).glob("*.yaml")))


def cluster_asked(item: str, bring: bool = False) -> ClusterAsked:
    """`h100x64:2.50`, `a100x128` (config/sized.py). `bring`: the user's own folder may hold others.

    Raises UserError for a cluster that is not there, and for a price that is none.
    """
    label, colon, price = item.partition(":")
    paid = None
    if colon:
        try:
            paid = float(price)
        except ValueError:
            raise UserError("not a price", where="clusters", given=item, allowed=f"dollars per device-hour, such as {label}:2.50") from None
        checked(paid, Positive, f"clusters: price of {label}")
    found = sized.sized(label)
    if not bring and found is None and label not in sized.on_file():
        if label.isdigit():
            raise UserError("not a cluster", where="clusters", given=label, remedy="a price has a decimal point: h100x64:2.50")
        raise sized.no_such_cluster(label)
    return ClusterAsked(label, (f"cluster={label}",), found and found[1], paid)


def items_of(axis: str, text: str) -> list[str]:
    """`A,B` or `[A,B]`. Raises UserError for none, and for one that is named twice."""
    items = [item.strip() for item in text.strip("[]").split(",") if item.strip()]
    if not items:
        raise UserError("no value", where=axis, given=text or "nothing", remedy=f"name some: {axis}=A,B")
    if twice := sorted({item for item in items if items.count(item) > 1}):
        raise UserError("named twice", where=axis, given=twice[0], remedy="name each once")
    return items


def _choices(axis: str, own: Mapping[str, str], known: Sequence[str], bring: bool) -> tuple[str, ...]:
    if axis not in own:
        return ()
    items = items_of(axis, own[axis])
    for item in items:
        if item not in known and not bring:
            raise UserError("no such choice", where=axis, given=item, allowed=", ".join(known), remedy=did_you_mean(item, known))
    return tuple(items)
