"""The order in which an iteration's steps are issued, with those cut in two that a profile lets overlap."""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.plan.steps import Step
from recsys_lab.plan.workload import Workload
from recsys_lab.simulate.costs import AHEAD, DENSE, REST
from recsys_lab.simulate.profile import Profile

DENSE_ALL_REDUCE = "dense.all_reduce"


def ordered(steps: tuple[Step, ...], profile: Profile, workload: Workload | None) -> list[Step]:
    """The given order; the bottom MLP apart from the rest where exchanges run beside it; background traffic where it is waited for: an
    overlapped all-reduce of dense gradients before the dense optimizer, an overlapped input distribution, which is the next batch's and
    begins with the dense part's forward, at the end. Where collectives run beside each other, all are issued before the first update.
    """
    found = _sync_late(list(steps)) if "dense_sync" in profile.overlaps else list(steps)
    if "collectives" in profile.overlaps:
        found.sort(key=lambda step: step.kind == "update")
    if "bottom" in profile.overlaps and workload is not None and any(layer.ahead for layer in workload.layers):
        found = _bottom_apart(found, workload)
    return _input_beside(found) if "input" in profile.overlaps else found


def _bottom_apart(steps: list[Step], workload: Workload) -> list[Step]:
    """`dense.forward.ahead` needs no embedding; `dense.backward.ahead` comes when the embeddings' gradients are on their way."""
    renamed = {name: f"{name}{REST}" for name in DENSE}
    found: list[Step] = []
    for step in steps:
        after = tuple(renamed.get(name, name) for name in step.after)
        if step.name == "dense.forward":
            found.append(replace(step, name=f"{step.name}{AHEAD}", flops=0.0, after=()))
            found.append(replace(step, name=renamed[step.name], after=(*after, f"{step.name}{AHEAD}")))
        elif step.name == "dense.backward":
            found.append(replace(step, name=renamed[step.name], after=after))
            found.append(replace(step, name=f"{step.name}{AHEAD}", flops=0.0, after=(renamed[step.name],)))
        else:
            found.append(replace(step, after=(*after, f"dense.backward{AHEAD}") if step.kind == "update" else after))
    return found


def _sync_late(steps: list[Step]) -> list[Step]:
    syncs = [step for step in steps if step.name == DENSE_ALL_REDUCE]
    rest = [step for step in steps if step.name != DENSE_ALL_REDUCE]
    at = next((i for i, step in enumerate(rest) if DENSE_ALL_REDUCE in step.after), len(rest))
    return [*rest[:at], *syncs, *rest[at:]]


def _input_beside(steps: list[Step]) -> list[Step]:
    inputs = [step for step in steps if step.phase == "input" and step.is_collective]
    rest = [step for step in steps if step not in inputs]
    at = next((i for i, step in enumerate(rest) if step.kind == "dense"), len(rest))
    first = tuple(step.name for step in rest[:at])[-1:]
    names = {step.name for step in inputs}
    inputs = [replace(step, after=step.after or first) for step in inputs]
    return [*(replace(step, after=tuple(name for name in step.after if name not in names)) for step in rest), *inputs]
