"""What an iteration really took here: times by phase, recorded collectives, memory."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist

from recsys_lab.base.devices import backend_of
from recsys_lab.base.environment import SHARED_MEMORY
from recsys_lab.cluster import ranks_text
from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader
from recsys_lab.executor.input_dist_prefetch import AHEAD
from recsys_lab.executor.recorded import Recorded, shares_memory, start_recording, stop_recording
from recsys_lab.executor.times import Times, mean_times, take_times
from recsys_lab.plan import Steps
from recsys_lab.record.result import WARM_UP, Checkpoints, Collective, IterationTime, LinkBytes, Measured, WireBytes
from recsys_lab.train.checkpoint_writer import Saved
from recsys_lab.train.links import LinkCounter, own_device
from recsys_lab.train.memory import peak_bytes
from recsys_lab.train.model_executor import TrainedModel
from recsys_lab.train.timestamp import Timestamp, ms_between, timestamp
from recsys_lab.train.transfer import transfers
from recsys_lab.train.wire import wire_bytes

#: Iterations whose times are read together.
AT_ONCE = 256


@dataclass(frozen=True)
class _Iteration:
    """When the one before ended, and this one's start, forward and backward pass and end."""

    timestamps: tuple[Timestamp, Timestamp, Timestamp, Timestamp, Timestamp]
    waited_ms: float
    examples: int


class Measure(pl.Callback):
    """Times every iteration after the first few. Records the collectives of `record_steps` of them.

    An iteration runs from the end of the one before to its own end, waiting for data included, evaluations and checkpoints left out.
    `steady`: whether the collectives of the batch that ends are those of one iteration. `before`: bytes that this process used when it had
    no model yet.
    """

    def __init__(self, loader: RankLoader, record_steps: int, steady: Callable[[], bool] = lambda: True, before: int | None = None):
        self.before, self.added = before, None  # type: int | None, int | None
        self.loader, self.record_steps, self.steady = loader, record_steps, steady
        self.iterations_ms: list[float] = []
        self.phases_ms: dict[str, list[float]] = defaultdict(list)
        self.recorded: list[list[Recorded]] = []
        self.exchange: list[Times] = []
        self.examples = 0
        self.links = LinkCounter(device) if (device := own_device()) is not None else None
        self._counted = 0
        self._steps = 0
        self._stores_before: dict[str, dict[str, int]] = {}
        self.stores: dict[str, dict[str, float]] = {}
        self.saved: list[Saved] = []
        self.training_s, self._began_s, self.copy_bytes = 0.0, 0.0, 0
        self._ended: Timestamp | None = None
        self._marks: dict[str, Timestamp] = {}
        self._timed: list[_Iteration] = []
        self._waited_s = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._ended = None

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        self._mark_links()
        self._marks = {"start": timestamp()}
        if self._steps >= WARM_UP and len(self.recorded) < self.record_steps:
            start_recording()

    def on_before_zero_grad(self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: Any) -> None:
        self._marks["forward"] = timestamp()

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._marks["backward"] = timestamp()

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int) -> None:
        now = timestamp()
        waited, self._waited_s = self.loader.wait_s - self._waited_s, self.loader.wait_s
        whole = batch.global_valid == self.loader.batch_size
        if self._steps >= WARM_UP and len(self.recorded) < self.record_steps:
            seen = stop_recording()
            times = take_times(seen, self._marks.get("backward", now).s)
            if whole and self.steady():
                self.recorded.append(sorted(seen, key=lambda one: one.name != AHEAD))  # an iteration's steps begin with ids
                self.exchange.append(times)
        if self._steps >= WARM_UP and self._ended is not None and whole and "backward" in self._marks:
            start, forward, backward = (self._marks[name] for name in ("start", "forward", "backward"))
            self._timed.append(_Iteration((self._ended, start, forward, backward, now), waited * 1e3, batch.global_valid))
            if len(self._timed) == AT_ONCE:
                self.count_timed()
        self._steps += 1
        self._ended = now

    def count_timed(self) -> None:
        """Iterations whose timestamps are known. A GPU's are once it has got there, so this waits for it."""
        timed, self._timed = self._timed, []
        for one in timed:
            ended, start, forward, backward, now = one.timestamps
            total = ms_between(ended, now)
            phases = {
                "data_wait": one.waited_ms,
                "forward": ms_between(start, forward),
                "backward": ms_between(forward, backward),
                "optimizer": ms_between(backward, now),
            }
            phases["other"] = total - sum(phases.values())
            self.iterations_ms.append(total)
            self.examples += one.examples
            for name, ms in phases.items():
                self.phases_ms[name].append(ms)

    def _mark_links(self) -> None:
        """At the begin of the first iteration after warm-up, and of the one after the last that is recorded."""
        if self.links is None or self._steps not in (WARM_UP, WARM_UP + self.record_steps):
            return
        self.links.mark()
        self._counted = self._steps - WARM_UP
        self._ended = None  # the iteration around a mark is not timed

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._ended = None

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._ended = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._began_s = time.perf_counter()
        self._stores_before = trainer.strategy.sharded.model.stores()  # type: ignore[attr-defined]  # the executor is ours

    def _count_stores(self, trainer: pl.Trainer) -> None:
        """By table with a cache, what an iteration of this rank hits, misses and moves on average. Evaluations between them included."""
        sharded, steps = trainer.strategy.sharded.model, max(1, self._steps)  # type: ignore[attr-defined]
        for table, counts in sharded.stores().items():
            self.stores[table] = {name: (count - self._stores_before[table][name]) / steps for name, count in counts.items()}

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.count_timed()
        trained: TrainedModel = trainer.strategy.sharded  # type: ignore[attr-defined]
        spent_s = time.perf_counter() - self._began_s
        trained.writer.wait()
        self.saved, self.training_s, self.copy_bytes = list(trained.saved), spent_s, trained.host_copy.nbytes
        peak = peak_bytes(trainer.strategy.root_device)
        self._count_stores(trainer)
        copy_bytes = self.copy_bytes if trainer.strategy.root_device.type == "cpu" else 0
        self.added = None if peak is None or self.before is None else peak - self.before - copy_bytes

    @property
    def steps_done(self) -> int:
        return self._steps

    def result(self, steps: Steps, hosts: int, ranks_per_host: int, device: torch.device) -> Measured | None:
        """The record's `measured`; collective. None when too few steps ran to measure any."""
        backend = backend_of(device)
        own = {
            "peak": _peak_memory_bytes(device),
            "added": self.added,
            "wire": self._wire_bytes(ranks_per_host, backend),
            "stores": self.stores,
            "saved": [one.bytes for one in self.saved],
            "copy": self.copy_bytes,
        }
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, own)
        counted, transfer_ms = None, None
        if self.links is not None:  # the launcher's hosts are of one machine, with one clock
            counted = self.links.total(self._counted)
            transfer_ms = transfers(self.recorded, [names_of(seen, steps, dist.get_rank()) for seen in self.recorded])
        if not self.iterations_ms:
            return None
        wires = [one["wire"] for one in everyone if one["wire"] is not None]
        total_ms = sum(self.iterations_ms)
        return Measured(
            backend=backend,
            transport=SHARED_MEMORY if device.type == "cpu" and shares_memory() else backend,
            world_size=hosts * ranks_per_host,
            hosts=hosts,
            ranks_per_host=ranks_per_host,
            examples_per_second=self.examples / total_ms * 1e3,
            iteration_ms=IterationTime(*(float(np.percentile(self.iterations_ms, q)) for q in (50, 95))),
            phases_ms={name: float(np.mean(ms)) for name, ms in self.phases_ms.items()},
            wire_bytes=WireBytes(*(float(np.mean([w[i] for w in wires])) for i in (0, 1))) if wires else None,
            collectives=self._collectives(steps),
            peak_memory_bytes=max(one["peak"] for one in everyone),
            added_memory_bytes=max((one["added"] for one in everyone if one["added"] is not None), default=None),
            data_wait_share=sum(self.phases_ms["data_wait"]) / total_ms,
            exchange_ms=mean_times(self.exchange),
            transfer_ms=transfer_ms,
            checkpoints=self._checkpoints([one["saved"] for one in everyone], max(one["copy"] for one in everyone)),
            stores=[one["stores"] for one in everyone] if any(one["stores"] for one in everyone) else None,
            links=LinkBytes(counted, sum(w[1] for w in wires)) if counted is not None and wires else None,
        )

    def _checkpoints(self, bytes_of_ranks: list[list[int]], copy_bytes: int) -> Checkpoints | None:
        """What those before the end of training cost. Of each rank the bytes of each."""
        if not self.saved:
            return None
        sizes, stalls = [sum(of_ranks) for of_ranks in zip(*bytes_of_ranks)], [one.stall_s for one in self.saved]
        full = [size for size, one in zip(sizes, self.saved) if not one.incremental]
        parts = [size for size, one in zip(sizes, self.saved) if one.incremental]
        return Checkpoints(
            count=len(self.saved),
            mean_s=float(np.mean(stalls)),
            in_background=sum(one.background for one in self.saved),
            write_s=float(np.mean([one.write_s for one in self.saved])),
            bytes=float(np.mean(sizes)),
            copy_bytes=copy_bytes,
            stall_share=sum(stalls) / self.training_s,
            incremental=len(parts),
            incremental_bytes_share=float(np.mean(parts) / np.mean(full)) if parts and full else None,
        )

    def _wire_bytes(self, ranks_per_host: int, backend: str) -> tuple[float, float] | None:
        """Intra-host and cross-host bytes that this rank sends an iteration."""
        if not self.recorded:
            return None
        rank = dist.get_rank()
        sent = [wire_bytes(c.kind, c.group, c.bytes, rank, ranks_per_host, backend=backend) for seen in self.recorded for c in seen]
        return tuple(sum(s[i] for s in sent) / len(self.recorded) for i in (0, 1)) if sent else (0.0, 0.0)  # type: ignore[return-value]

    def _collectives(self, steps: Steps) -> list[Collective]:
        """This rank's collectives of an iteration, each the mean over the recorded ones, named after the steps they belong to."""
        same_length = [seen for seen in self.recorded if len(seen) == len(self.recorded[0])]
        if not same_length:
            return []
        names = names_of(same_length[0], steps, dist.get_rank())
        return [
            Collective(
                name=names[i],
                kind=same_length[0][i].kind,
                group=ranks_text(same_length[0][i].group),
                bytes=round(float(np.mean([seen[i].bytes for seen in same_length]))),
                ms=float(np.median([seen[i].ms for seen in same_length])),
            )
            for i in range(len(same_length[0]))
        ]


def names_of(seen: list[Recorded], steps: Steps, rank: int) -> list[str]:
    """For each recorded collective, the next step of the same kind and group. The last one takes the rest (buckets)."""
    waiting: dict[tuple, list[str]] = defaultdict(list)
    for step in steps.collectives:
        group = step.group_of(rank)
        if group is not None:
            waiting[(step.kind, group)].append(step.name)
    names = []
    for one in seen:
        queue = waiting[(one.kind, one.group)]
        names.append((queue.pop(0) if len(queue) > 1 else queue[0]) if queue else one.kind)
    return names


def _peak_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
