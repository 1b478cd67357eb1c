"""What the `_target_` of each group must be, so that another one is refused before anything runs."""

from __future__ import annotations

import inspect
import sys

from recsys_lab.errors import UserError

#: Classes that a target is or derives from, by their full names: this room imports none of them.
BASES = {
    "model": "recsys_lab.models.options.ModelKind",
    "cluster": "recsys_lab.cluster.topology.Cluster",
    "precision": "recsys_lab.precision.policy.Precision",
    "simulate.profile": "recsys_lab.simulate.profile.Profile",
    "sharder.planner": "recsys_lab.sharders.base.Sharder",
    "sharder.towers": "recsys_lab.sharders.dmt.towers.TowerOptions",
}
#: Of functions, what they are given beside their keys: positions, then names.
GIVEN: dict[str, tuple[int, tuple[str, ...]]] = {
    "data": (1, ()),
    "study": (1, ()),
    "launcher": (3, ("hosts", "ranks_per_host", "threads_per_rank")),
    "logger": (4, ()),
    "sharder.executor": (2, ("device", "optimizer", "precision", "seed", "hot_rows", "scratch")),
}


def check_kind(target: object, where: str, name: str) -> None:
    """Raises UserError unless `target`, spelt `name`, is what the group at `where` builds from."""
    remedy = "name what the other choices of the group do, or one of its kind"
    if where in BASES:
        if not inspect.isclass(target) or BASES[where] not in {f"{base.__module__}.{base.__qualname__}" for base in target.__mro__}:
            kind = f"a {BASES[where].rsplit('.', 1)[-1]}"
            raise UserError(f"`_target_` is not {kind}", where=f"{where}._target_", given=name, allowed=BASES[where], remedy=remedy)
    elif where in GIVEN:
        is_pythons = getattr(target, "__module__", "").partition(".")[0] in sys.stdlib_module_names  # shutil.rmtree takes a folder, too
        positions, names = GIVEN[where]
        try:
            signature = inspect.signature(target)  # type: ignore[arg-type]  # what is no function raises TypeError
            bound = signature.bind_partial(*range(positions), **dict.fromkeys(names)).arguments
        except (TypeError, ValueError):
            signature, bound = inspect.Signature(), {}
        others = [of for of in signature.parameters.values() if of.name not in bound or of.kind in (of.VAR_POSITIONAL, of.VAR_KEYWORD)]
        are_keys = all(of.kind is of.KEYWORD_ONLY or of.default is not of.empty for of in others)
        if is_pythons or not inspect.isfunction(target) or not bound or not are_keys:
            raise UserError("`_target_` is no function of this kind", where=f"{where}._target_", given=name, remedy=remedy)
