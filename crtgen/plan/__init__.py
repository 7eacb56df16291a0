"""Memory planning: order, lifetimes, in-place, row loops, offsets in one static arena."""

from crtgen.plan.chart import Bar, chart
from crtgen.plan.check import check_plan
from crtgen.plan.control import plan_model
from crtgen.plan.fit import check_fit
from crtgen.plan.lifetime import Lifetime, lifetimes
from crtgen.plan.plan import Plan, Slot, Step
from crtgen.plan.planner import make_plan
from crtgen.plan.row_loops import loop_over_rows
from crtgen.plan.schedule import Branch, Call, Loop, RowLoop

__all__ = [
    "Bar",
    "Branch",
    "Call",
    "Lifetime",
    "Loop",
    "Plan",
    "RowLoop",
    "Slot",
    "Step",
    "chart",
    "check_fit",
    "check_plan",
    "lifetimes",
    "loop_over_rows",
    "make_plan",
    "plan_model",
]
