"""Short names of a sweep's rows: without what all of them share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Of a row that does not have the key.
DEFAULT = "default"
#: Says what it is without its key, as a choice such as dcn does. `true`, `null` and numbers do not.
WORD = re.compile(r"(?!(?:true|false|null|none|default|inf|nan)$)[a-z_][\w.-]*", re.IGNORECASE)


def short_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """The end of each key that no other of `keys` has: `sparse.lr` and `dense.lr` of `optimizer.sparse.lr` and `optimizer.dense.lr`."""
    return tuple(_short(key, [other for other in keys if other != key]) for key in keys)


def _short(key: str, others: Sequence[str]) -> str:
    parts = key.split(".")
    ends = [".".join(parts[-n:]) for n in range(1, len(parts))]
    return next((end for end in ends if not any(f".{other}".endswith(f".{end}") for other in others)), key)


def short_values(values: Sequence[str]) -> dict[str, str]:
    """Each of a key's `values`, of paths without the folders that all are in."""
    paths = [value.split("/") for value in values if value != DEFAULT]
    shared = 0
    while len(set(values)) > 1 and all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    return {value: value if value == DEFAULT else "/".join(value.split("/")[shared:]) for value in values}


def row_name(choices: Mapping[str, str], of_rows: Mapping[str, Sequence[str]]) -> str:
    """A row in few words: `dcn lr=0.1`.

    Args:
        choices: the row's value of each short key.
        of_rows: the values of all rows of it. A key whose values say what they are, and are no other key's, is left out.
    """
    return " ".join(value if _says_enough(key, of_rows) else f"{key}={value}" for key, value in choices.items())


def _says_enough(key: str, of_rows: Mapping[str, Sequence[str]]) -> bool:
    others = {value for other, values in of_rows.items() if other != key for value in values}
    return all(WORD.fullmatch(value) and value not in others for value in of_rows[key])
