"""Memory planning: order, lifetimes, in-place updates, row loops, offsets in one static arena."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.compiler.plan.check import check_plan
    from crtgen.compiler.plan.control import plan_model
    from crtgen.compiler.plan.drawing import Bar, chart
    from crtgen.compiler.plan.fit import check_fit
    from crtgen.compiler.plan.lifetime import Lifetime, lifetimes
    from crtgen.compiler.plan.plan import Branch, Call, Plan, RowLoop, Step, WhileLoop
    from crtgen.compiler.plan.planner import Spread, make_plan
    from crtgen.compiler.plan.resident import FreeMemory, Resident, place_constants
    from crtgen.compiler.plan.row_loops import loop_over_rows
    from crtgen.compiler.plan.slot import NPU_PART, ArenaPart, ArenaSlot
    from crtgen.compiler.plan.spread import faster_memory, spread_arena, with_waits

__all__ = [
    "NPU_PART",
    "ArenaPart",
    "ArenaSlot",
    "Bar",
    "Branch",
    "Call",
    "FreeMemory",
    "Lifetime",
    "Plan",
    "Resident",
    "RowLoop",
    "Spread",
    "Step",
    "WhileLoop",
    "chart",
    "check_fit",
    "check_plan",
    "faster_memory",
    "lifetimes",
    "loop_over_rows",
    "make_plan",
    "place_constants",
    "plan_model",
    "spread_arena",
    "with_waits",
]

__getattr__ = on_demand(__name__, __file__)
