"""Neo's planner (arXiv 2104.05158, section 4.1): each table cut in one of seven ways, the pieces placed so that ranks cost alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated

from recsys_lab.base.ranges import NotNegative, OneOf
from recsys_lab.base.schema import check_fields
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import check_kinds
from recsys_lab.plan.memory import bytes_of_ranks, check_fits, missing_bytes
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.whole import TABLE_WISE
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.neo.assign import PricedPlan, priced_plan, room_of_rank
from recsys_lab.sharders.neo.bound import bound_of_plans
from recsys_lab.sharders.neo.choose import LIMITS, cheapest_cuts, smallest, with_one_width
from recsys_lab.sharders.neo.costs import RankCosts, Setting, Weights, costs_of_ranks
from recsys_lab.sharders.neo.cuts import Cut, cuts_of
from recsys_lab.sharders.neo.levels import OF_TORCHREC, SCHEMES
from recsys_lab.sharders.neo.placement import HEURISTICS
from recsys_lab.sharders.neo.reasons import Choice, Reasons
from recsys_lab.sharders.options import KEY


@dataclass(frozen=True, kw_only=True)
class Neo4D(Sharder):
    """The plan whose slowest ranks cost least, of those with pieces below each of a few limits (`choose.LIMITS`).

    Attributes:
        placement: greedy or karmarkar_karp.
        schemes: those that tables may have; None: TorchRec's seven. flexshard: data-parallel across hosts, rows inside.
        communication_weight, load_weight: of the two costs in ms.
        even_out: pieces are moved after the heuristic, so that both costs are even, not their sum alone (`repair`).
    """

    placement: Annotated[str, OneOf(tuple(HEURISTICS))] = "karmarkar_karp"
    schemes: list[Annotated[str, OneOf(SCHEMES)]] | None = None
    communication_weight: NotNegative = 1.0
    load_weight: NotNegative = 4.0
    even_out: bool = True

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Raises UserError for options that cannot be, PlanDoesNotFit where a rank cannot hold its part."""
        plan = self.best(inputs).plan
        check_fits(plan, inputs.workload, inputs.cluster)
        return plan

    def best(self, inputs: PlanInputs) -> PricedPlan:
        """The plan and its costs, whether it fits or not. Where hot rows matter, the better of what is planned with them and without."""
        hot = self._setting(inputs)
        plan, plain = (self._best(inputs, setting) for setting in (hot, replace(hot, hot_rows=False)))
        fits = missing_bytes(bytes_of_ranks(plain.plan, inputs.workload), inputs.cluster)[0] <= 0
        plain = replace(plain, costs=costs_of_ranks(plain.plan, hot), fits=fits)
        best = plan if plan.plan == plain.plan else min((plan, plain), key=lambda one: (not one.fits, one.costs.worst_ms))
        return replace(best, bound_ms=min(plain.bound_ms, plan.bound_ms, best.costs.worst_ms))  # blocks of rows are rounded up

    def _best(self, inputs: PlanInputs, setting: Setting) -> PricedPlan:
        options = self._cuts(inputs, setting)
        bound, room = bound_of_plans(options, inputs.cluster.world_size), room_of_rank(inputs)
        even = sum(min(cut.total_ms for cut in cuts) for cuts in options) / inputs.cluster.world_size
        variants = with_one_width(options)
        if inputs.tables[0].pooling != "none":  # what is a host's is one exchange more: worth it or not only in all
            variants = [options, [[cut for cut in cuts if not cut.of_hosts] or cuts for cuts in options]]

        def plan_of(cuts: list[Cut]) -> PricedPlan:
            return priced_plan(inputs.tables, cuts, setting, room, HEURISTICS[self.placement], bound, self.even_out)

        choices: list[list[Cut]] = []
        plans: list[PricedPlan] = []
        for of_tables, limit in product(variants, LIMITS):
            cuts = cheapest_cuts(of_tables, limit * even, room)
            evenly = sum(cut.total_ms for cut in cuts) / inputs.cluster.world_size
            if cuts in choices:
                continue
            choices.append(cuts)
            if all(evenly < plan.costs.worst_ms or not plan.fits for plan in plans):  # else no placement of these pieces is better
                plans.append(plan_of(cuts))
        if not any(plan.fits for plan in plans):
            plans.append(plan_of(smallest(variants[0])))
        return min(plans, key=lambda plan: (not plan.fits, plan.costs.worst_ms, plan.pieces))

    def reasons(self, plan: ShardingPlan, inputs: PlanInputs) -> Reasons:
        """The schemes of `plan`, the costs of its ranks beside their bounds, and what other choices would cost."""
        other = "greedy" if self.placement == "karmarkar_karp" else "karmarkar_karp"
        alternatives = {f"placement={other}": replace(self, placement=other).best(inputs)}
        if self.even_out:
            alternatives["even_out=false"] = replace(self, even_out=False).best(inputs)
        if self.schemes != [TABLE_WISE]:
            alternatives[f"{TABLE_WISE} only"] = replace(self, schemes=[TABLE_WISE]).best(inputs)
        free = replace(self, schemes=list(SCHEMES) if set(self.schemes or ()) - set(OF_TORCHREC) else None).best(inputs)
        if self.schemes:
            alternatives["all schemes"] = free

        def choice(name: str, costs: RankCosts) -> Choice:
            return Choice(name, costs.worst_ms, costs.imbalance, costs.worst_ms / free.bound_ms if free.bound_ms else 1.0)

        return Reasons(
            schemes=dict(Counter(p.scheme for p in plan.placements)),
            bound_ms=free.bound_ms,
            chosen=choice("this plan", costs_of_ranks(plan, self._setting(inputs))),
            alternatives=tuple(choice(name if a.fits else f"{name} (does not fit)", a.costs) for name, a in alternatives.items()),
        )

    def _setting(self, inputs: PlanInputs) -> Setting:
        """Raises UserError for options that cannot be."""
        check_fields(self, KEY)
        return Setting.of(inputs, Weights(self.communication_weight, self.load_weight))

    def _cuts(self, inputs: PlanInputs, setting: Setting) -> list[list[Cut]]:
        """The ways to cut each table. Raises UserError for a table that has none, and for sequences beside pooled tables."""
        check_kinds(inputs.tables)
        allowed = self.schemes or OF_TORCHREC
        options = [cuts_of(index, table, allowed, setting, inputs.workload) for index, table in enumerate(inputs.tables)]
        for table, cuts in zip(inputs.tables, options):
            if not cuts:
                raise UserError(
                    "this table can be cut in none of the ways that are allowed",
                    where=f"{KEY}.schemes",
                    given=f"{', '.join(allowed)} for table {table.name}",
                    remedy=f"allow {TABLE_WISE} or {ROW_WISE} too",
                )
        return options
