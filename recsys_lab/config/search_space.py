"""What a search may vary, read from the overrides of its command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep

from recsys_lab.errors import UserError


@dataclass(frozen=True)
class Axis:
    """A key that varies over `choices`, or, without them, from `low` to `high`. Numbers are whole or not, and even or logarithmic."""

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    whole: bool = False
    log: bool = False


@dataclass(frozen=True)
class Space:
    """`fixed` overrides, what varies, and the seeds with which each configuration runs; none: that of the config."""

    fixed: tuple[str, ...]
    axes: tuple[Axis, ...]
    seeds: tuple[str, ...]


def read_space(overrides: Sequence[str]) -> Space:
    """`key=a,b`, `choice()`, `glob()`, `range()` and `interval()` vary; `tag(log,interval(...))` in its logarithm. `seed=1,2` are seeds.

    Raises UserError where nothing varies, or a range cannot be searched.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    varied = [o for o in parsed if o.is_sweep_override()]
    seeds = [o for o in varied if o.key_or_group == "seed"]
    if any(not o.is_choice_sweep() and not o.is_range_sweep() for o in seeds):
        raise UserError("seeds are an axis of their own", where="seed", given=seeds[0].input_line, allowed="seed=1,2,3 or range(1,4)")
    axes = tuple(_axis(o) for o in varied if o.key_or_group != "seed")
    if not axes:
        remedy = "such as 'optimizer.sparse.lr=tag(log,interval(1e-4,1e-2))'; or leave hydra/sweeper=optuna out"
        raise UserError("a search needs something to vary", where="command line", given=" ".join(overrides), remedy=remedy)
    fixed = tuple(str(o.input_line) for o in parsed if not o.is_sweep_override())
    return Space(fixed, axes, tuple(value for o in seeds for value in o.sweep_string_iterator()))


def _axis(override: Override) -> Axis:
    key, value = str(override.get_key_element()), override.value()
    if isinstance(value, ChoiceSweep):
        return Axis(key, tuple(override.sweep_string_iterator()))
    if isinstance(value, RangeSweep):
        assert value.start is not None and value.stop is not None
        step = value.step if value.step is not None else 1
        whole = all(isinstance(x, int) for x in (value.start, value.stop, step))
        last = value.start + (-(-(value.stop - value.start) // step) - 1) * step  # a range ends before its stop
        return Axis(key, (), value.start, last, step, whole)
    assert isinstance(value, IntervalSweep)
    low, high = value.start, value.end
    log = "log" in value.tags
    if low is None or high is None or not low < high or (log and low <= 0):
        raise UserError("not an interval", where=key, given=override.input_line, allowed="interval(low, high), above 0 with tag(log, ...)")
    return Axis(key, (), low, high, None, isinstance(low, int) and isinstance(high, int), log)
