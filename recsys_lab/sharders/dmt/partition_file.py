"""A partition of features into towers as a JSON file: saved, loaded, compared."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from recsys_lab.base.files import read_text, write_text
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import UserError

FORMAT = "recsys_lab partition 1"
WRITER = "python -m recsys_lab partition writes one"


@dataclass(frozen=True)
class Partition:
    """T towers of feature names, and how they were found.

    `strategy`: coherent, diverse or strided. `features` [F] name the rows of `affinity` [F, F] and of `coordinates` [F, n].
    `balance`: largest size over smallest, greatest load over the mean, and each tower's bytes looked up a sample.
    `source`: what the affinity was measured on. Plain JSON.
    """

    towers: tuple[tuple[str, ...], ...]
    strategy: str
    features: tuple[str, ...]
    affinity: tuple[tuple[float, ...], ...]
    coordinates: tuple[tuple[float, ...], ...]
    stress: float
    seed: int
    size_ratio: float
    data_fingerprint: str
    balance: Mapping[str, Any]
    source: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Writes the file. Raises UserError where that is not possible."""
        write_text(path, json.dumps({"format": FORMAT, **asdict(self)}, indent=1, allow_nan=False) + "\n")


def load_partition(path: Path) -> Partition:
    """The file that `save` wrote. Raises UserError, which says what is wrong with another."""
    try:
        read = json.loads(read_text(path, WRITER))
    except (ValueError, RecursionError):
        raise UserError("not a partition: no JSON", where=path, remedy=WRITER) from None
    if not isinstance(read, dict) or read.get("format") != FORMAT:
        given = read.get("format") if isinstance(read, dict) else type(read).__name__
        raise UserError("not a partition", where=path, given=f"format {given}", allowed=FORMAT)
    check_shape(read, Partition, path, WRITER)
    partition = Partition(**{field.name: _frozen(read[field.name]) for field in fields(Partition)})
    lengths = {len(partition.features), len(partition.affinity), len(partition.coordinates), *(len(r) for r in partition.affinity)}
    if not all(partition.towers) or not partition.towers or len(lengths) != 1:
        raise UserError("the partition's fields do not fit each other", where=path, allowed="T lists of names; F features, [F, F], [F, n]")
    members = [name for tower in partition.towers for name in tower]
    if sorted(members) != sorted(partition.features):
        several = [name for name, count in Counter(members).items() if count > 1]
        given = f"{several[0]} is in several" if several else f"{len(members)} of {len(partition.features)} features"
        raise UserError("each feature must be in one tower", where=path, given=given)
    return partition


def adjusted_rand_index(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> float:
    """How far two groupings of the same names agree: 1 the same, about 0 by chance (Hubert and Arabie 1985, equation 5).

    Raises UserError where they are not of the same names.
    """
    first, second = ({name: g for g, group in enumerate(groups) for name in group} for groups in (one, other))
    if set(first) != set(second):
        odd = sorted(set(first) ^ set(second))
        raise UserError("two partitions of other features", where="partition", given=f"{len(odd)} are in one only, such as {odd[0]}")
    both = sum(math.comb(n, 2) for n in Counter((first[name], second[name]) for name in first).values())
    in_first, in_second = (sum(math.comb(len(group), 2) for group in groups) for groups in (one, other))
    expected = in_first * in_second / max(1, math.comb(len(first), 2))
    most = (in_first + in_second) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
