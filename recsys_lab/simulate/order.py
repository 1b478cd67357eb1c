"""The order in which an iteration's steps are issued, with those cut in two that a profile lets overlap."""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.plan.steps import DENSE, DENSE_SYNC, WRITE_BACK, Step
from recsys_lab.plan.workload import Workload
from recsys_lab.simulate.costs import AHEAD, REST
from recsys_lab.simulate.profile import Profile
from recsys_lab.simulate.stores import is_brought


def ordered(steps: tuple[Step, ...], profile: Profile, workload: Workload | None) -> list[Step]:
    """The given order with three changes.

    The bottom MLP is apart from the rest where exchanges run beside it. An overlapped all-reduce of dense gradients goes before the dense
    optimizer, which waits for it. An overlapped input distribution is the next batch's. It begins with the dense arch's forward and is
    awaited at the end. Where collectives run beside each other, all are issued before the first update.
    """
    sequence = _sync_late(list(steps)) if "dense_sync" in profile.overlaps else list(steps)
    if "collectives" in profile.overlaps:
        sequence.sort(key=lambda step: step.kind == "update" or step.kind == WRITE_BACK and not is_brought(step))
    if "bottom" in profile.overlaps and workload is not None and any(layer.ahead for layer in workload.layers):
        sequence = _bottom_apart(sequence)
    return _input_beside(sequence) if "input" in profile.overlaps else sequence


def is_dense_work(step: Step) -> bool:
    """Forward or backward of the part of the model that all ranks have."""
    return step.kind == "dense" and step.role == DENSE


def _bottom_apart(steps: list[Step]) -> list[Step]:
    """The forward's part that needs no embedding begins at once. The backward's comes when the embeddings' gradients are on their way."""
    dense = {step.phase: step for step in steps if is_dense_work(step)}
    ahead = {phase: f"{step.name}.{AHEAD}" for phase, step in dense.items()}
    rest = {step.name: f"{step.name}.{REST}" for step in dense.values()}
    apart: list[Step] = []
    for step in steps:
        after = tuple(rest.get(name, name) for name in step.after)
        if not is_dense_work(step):
            apart.append(replace(step, after=(*after, ahead["backward"]) if step.kind == "update" else after))
            continue
        first = replace(step, name=ahead[step.phase], part=AHEAD, flops=0.0, after=())
        other = replace(step, name=rest[step.name], part=REST, after=after)
        if step.phase == "forward":
            apart += [first, replace(other, after=(*after, first.name))]
        else:
            apart += [other, replace(first, after=(other.name,))]
    return apart


def _sync_late(steps: list[Step]) -> list[Step]:
    syncs = [step for step in steps if step.role == DENSE_SYNC]
    names = {step.name for step in syncs}
    rest = [step for step in steps if step.role != DENSE_SYNC]
    at = next((i for i, step in enumerate(rest) if names & set(step.after)), len(rest))
    return [*rest[:at], *syncs, *rest[at:]]


def _input_beside(steps: list[Step]) -> list[Step]:
    inputs = [step for step in steps if step.phase == "input" and (step.is_collective or is_brought(step) and not step.blocks)]
    rest = [step for step in steps if step not in inputs]
    at = next((i for i, step in enumerate(rest) if step.kind == "dense" and step.phase != "input"), len(rest))
    first = tuple(step.name for step in rest[:at])[-1:]
    names = {step.name for step in inputs}
    inputs = [replace(step, after=step.after or first) for step in inputs]
    return [*(replace(step, after=tuple(name for name in step.after if name not in names)) for step in rest), *inputs]
