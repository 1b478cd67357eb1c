"""The parts of tables on a rank, and a checkpoint of other ranks or of another plan in this rank's layout.

A rank's file says where its shards stand in their tables. So a rank of another number of ranks copies what overlaps with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.distributed.types import ShardedModule

from recsys_lab.errors import UserError
from recsys_lab.executor.torch_private import ShardedTensor

#: First row, first column, rows, columns.
Block = list[int]


def local_tensors(value: Any) -> list[Tensor]:
    """What this rank has of an entry of a state dict. Changing it changes the module."""
    return [shard.tensor for shard in value.local_shards()] if isinstance(value, ShardedTensor) else [value]


def names_of_tables(module: nn.Module) -> set[str]:
    """The names, in the state dict, of what sharded collections hold."""
    prefixes = tuple(f"{path}." for path, part in module.named_modules(remove_duplicate=False) if isinstance(part, ShardedModule))
    return {name for name in module.state_dict() if name.startswith(prefixes)} if prefixes else set()


@dataclass(frozen=True)
class Layout:
    """Where a rank's part of a checkpoint stands. Plain data, as the rank's file has it.

    Attributes:
        world_size: ranks that wrote the checkpoint.
        plan: the fingerprint of their plan.
        blocks: of each table's weight, the blocks that this rank has, in their order in the file.
        sizes: rows and columns of each table.
        optimizers: of each optimizer, the names of its parameters, in its order.
    """

    world_size: int
    plan: str
    blocks: dict[str, list[Block]] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    optimizers: list[list[str]] = field(default_factory=list)

    @staticmethod
    def of(module: nn.Module, optimizers: Sequence[torch.optim.Optimizer], world_size: int, plan: str) -> Layout:
        """That of a sharded module, on this rank."""
        layout, state = Layout(world_size, plan), module.state_dict()
        for name in sorted(names_of_tables(module)):
            value = state[name]
            layout.sizes[name] = list(value.size())
            if isinstance(value, ShardedTensor):
                layout.blocks[name] = [[*s.metadata.shard_offsets, *s.metadata.shard_sizes] for s in value.local_shards()]
            else:
                layout.blocks[name] = [[0, 0, *value.shape]]
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        for optimizer in optimizers:
            layout.optimizers.append([names.get(id(one), "") for group in optimizer.param_groups for one in group["params"]])
        return layout

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def whole(self) -> Layout:
        """That of one process with every table."""
        return Layout(1, "", {name: [[0, 0, *size]] for name, size in self.sizes.items()}, self.sizes, self.optimizers)


class _Buffer:
    """A block of a tensor, filled from the blocks of other ranks."""

    def __init__(self, block: Block, like: Tensor):
        self.block = block
        self.tensor = torch.empty(block[2:], dtype=like.dtype)
        self.missing = self.tensor.numel()

    def copy_overlap(self, block: Block, source: Tensor) -> None:
        """Copies what both have. Replicas give it once."""
        overlap = _overlap(self.block, block)
        if self.missing and overlap is not None:
            inside, of_source = overlap
            self.tensor[inside] = source[of_source]
            self.missing -= self.tensor[inside].numel()

    def result(self) -> Tensor:
        return self.tensor


class _RowStateBuffer(_Buffer):
    """A number a row. Each part of its columns has what the rank of those columns had, and the row has their mean.

    Row-wise Adagrad's number is a mean over columns itself. So parts that become a whole row give just what the whole row would have kept.
    """

    def result(self) -> Tensor:
        return self.tensor.double().mean(1, keepdim=True).to(self.tensor.dtype)


def _overlap(own: Block, source: Block) -> tuple[tuple[slice, slice], tuple[slice, slice]] | None:
    pairs = []
    for own_start, source_start, own_size, source_size in zip(own[:2], source[:2], own[2:], source[2:]):
        start, stop = max(own_start, source_start), min(own_start + own_size, source_start + source_size)
        if start >= stop:
            return None
        pairs.append((slice(start - own_start, stop - own_start), slice(start - source_start, stop - source_start)))
    (row, source_row), (col, source_col) = pairs
    return (row, col), (source_row, source_col)


def resharded(files: Callable[[], Iterator[tuple[Layout, dict[str, Any]]]], own: Layout, where: object) -> dict[str, Any]:
    """A checkpoint of other ranks, with the weights and the optimizer states that `own` wants.

    Args:
        files: reads the files in the order of ranks, one at a time.
        own: where this rank's shards stand.
        where: the checkpoint, for errors.

    Returns:
        A checkpoint as this rank would have written it. What is no table's is rank 0's.

    Raises:
        UserError: for tables of another size, for a part that no rank has, and for a state that is no weight's and no row's.
    """
    checkpoint: dict[str, Any] = {}
    weights: dict[tuple[str, int], _Buffer] = {}
    states: dict[tuple[int, str], dict[str, Any]] = {}
    for layout, part in files():
        checkpoint = checkpoint or part
        _check_same_tables(layout, own, where)
        for name, blocks in own.blocks.items():
            for number, block in enumerate(blocks):
                for source, tensor in zip(layout.blocks[name], part["state_dict"][name], strict=True):
                    weights.setdefault((name, number), _Buffer(block, tensor)).copy_overlap(source, tensor)
        for number, optimizer in enumerate(part.get("optimizer_states", ())[: len(own.optimizers)]):  # none where nothing is trained
            for key, state in optimizer["state"].items():
                name = layout.optimizers[number][key] if isinstance(key, int) else key
                if name in own.blocks:
                    _copy_state(states.setdefault((number, name), {}), state, layout.blocks[name], own.blocks[name], where, name)
    _check_whole(weights, states, where)
    for name, blocks in own.blocks.items():
        checkpoint["state_dict"][name] = [weights[name, number].tensor for number in range(len(blocks))]
    for number, optimizer in enumerate(checkpoint.get("optimizer_states", ())[: len(own.optimizers)]):
        keys = {name: key for key, name in enumerate(own.optimizers[number])}
        by_name = any(isinstance(key, str) for key in optimizer["state"])
        for (of, name), state in states.items():
            if of == number and name in keys:
                optimizer["state"][name if by_name else keys[name]] = {what: _tensor_of(value) for what, value in state.items()}
    return checkpoint


def _tensor_of(value: Any) -> Any:
    return value.result() if isinstance(value, _Buffer) else value


def _copy_state(
    into: dict[str, Any], state: Mapping[str, Any], saved_blocks: list[Block], own_blocks: list[Block], where: object, name: str
) -> None:
    """One table's state of one optimizer. A rank has one block of a table, or none (`ShardedStrategy` sees to it)."""
    block = own_blocks[0] if own_blocks else [0, 0, 0, 1]
    source = saved_blocks[0] if saved_blocks else [0, 0, 0, 1]
    for key, value in state.items():
        if not isinstance(value, Tensor) or value.dim() == 0:
            into.setdefault(key, value)  # such as a number of steps, which all ranks share
        elif not source[2]:
            continue  # a rank without rows of this table
        elif list(value.shape) == source[2:]:
            into.setdefault(key, _Buffer(block, value)).copy_overlap(source, value)
        elif value.shape[0] == source[2] and value.numel() == source[2]:
            into.setdefault(key, _RowStateBuffer(block, value)).copy_overlap(source, value.reshape(-1, 1).expand(source[2:]))
        else:
            shape, at = tuple(value.shape), f"{where} {name} {key}"
            remedy = "resume under the plan that it was written with"
            raise UserError("a state that is no weight's and no row's", where=at, given=shape, remedy=remedy)


def _check_same_tables(checkpoint: Layout, own: Layout, where: object) -> None:
    for name in sorted({*checkpoint.sizes, *own.sizes}):
        size, own_size = checkpoint.sizes.get(name), own.sizes.get(name)
        if size != own_size:
            what = "the checkpoint has no such table" if size is None else "the checkpoint has a table more"
            if size and own_size:
                what = f"the checkpoint has another size of {name}"
            given, allowed = ("x".join(map(str, shape)) if shape else None for shape in (own_size, size))
            raise UserError(what, where=where, given=given or name, allowed=allowed)


def _check_whole(weights: Mapping[Any, _Buffer], states: Mapping[Any, Mapping[str, Any]], where: object) -> None:
    for (name, _), buffer in weights.items():
        if buffer.missing:
            raise UserError("the checkpoint lacks a part of a table", where=f"{where} {name}", given=f"{buffer.missing} values missing")
    for (_, name), state in states.items():
        for key, value in state.items():
            if isinstance(value, _Buffer) and value.missing:
                given = f"{value.missing} values missing"
                raise UserError("the checkpoint lacks a part of an optimizer's state", where=f"{where} {name} {key}", given=given)
